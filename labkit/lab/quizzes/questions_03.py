"""The quiz of notebook 03: tasks in flight, the reorder buffer, epochs, shards and seeds."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "`num_workers=2`, `prefetch_factor=3`, and plenty of samples. How many tasks are handed "
        "out before the first batch is given?",
        (
            Option("2", "One each would leave a worker idle between two tasks."),
            Option("3", "The factor counts for each worker, not for all together."),
            Option("6", "Three for each of the two workers.", right=True),
            Option("All of the epoch", "Then a whole epoch could pile up in memory."),
        ),
    ),
    Question(
        "Batches 1 and 3 have come from worker 1; worker 0 still works on batch 0. What does the "
        "loader give next, by default?",
        (
            Option(
                "Batch 1: it is there.",
                "That is so with `in_order=False`. By default the sampler's order holds.",
            ),
            Option(
                "Nothing until batch 0 has come; batches 1 and 3 wait in the reorder buffer.",
                "Then 0 and 1 are given, and 3 waits for 2.",
                right=True,
            ),
            Option(
                "It gives batch 0 to worker 1, which is free.",
                "A task stays with the worker that it was handed to.",
            ),
        ),
    ),
    Question(
        "An IterableDataset of 10 samples never asks for its worker info. How many samples does "
        "an epoch with 2 workers give?",
        (
            Option(
                "20",
                "Each worker has a copy of the dataset and goes through all of it.",
                right=True,
            ),
            Option(
                "10",
                "With a sampler the loader shares out indices; here there are none to share out.",
            ),
            Option("5", "So many would be one worker's share, if somebody shared them out."),
        ),
    ),
    Question(
        "`persistent_workers=True` and an IterableDataset: what happens in a worker when the "
        "second epoch begins?",
        (
            Option(
                "The process ends, and a new one is started.",
                "That is so without `persistent_workers`.",
            ),
            Option(
                "It gets a new copy of the dataset from the main process.",
                "It keeps the copy that it got at its start, with all that was changed in there.",
            ),
            Option(
                "It is told to resume, and makes a new fetcher for the dataset that it has.",
                "So `__iter__` is called again, and the samples begin anew.",
                right=True,
            ),
        ),
    ),
    Question(
        "The base seed of an epoch is s. What is torch seeded with in worker i?",
        (
            Option(
                "s in every worker",
                "Then all workers would draw the same numbers and augment in the same way.",
            ),
            Option("s + i", "Different in each worker, and the same again from s.", right=True),
            Option(
                "A number that each worker draws for itself",
                "Then no run could be repeated.",
            ),
        ),
    ),
)
