"""The quiz of notebook 01: sampler, fetch, collate, and counting iterations."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "1,000 samples, batch size 64, `drop_last=True`, 3 epochs: how many iterations?",
        (
            Option("48", "That keeps the 40 samples left over in each epoch."),
            Option("46", "3,000 / 64 rounded down lets a batch run on into the next epoch."),
            Option("45", "15 full batches an epoch, three times.", right=True),
        ),
    ),
    Question(
        "Why did the first hand-built shuffle differ from PyTorch's?",
        (
            Option(
                "Workers mixed the order.",
                "There were none, and with workers the order stays the sampler's.",
            ),
            Option(
                "The base seed was drawn first.",
                "The generator had moved on before the sampler used it.",
                right=True,
            ),
            Option(
                "`randperm` differs at each call.",
                "From the same generator state it gives the same order.",
            ),
        ),
    ),
    Question(
        "Where does collate run when `num_workers` is 2?",
        (
            Option(
                "In the worker that fetched the samples.",
                "What leaves the worker is a finished batch.",
                right=True,
            ),
            Option(
                "In the main process.",
                "That is so only with no workers. Here it hands out indices and takes in batches.",
            ),
            Option(
                "In both workers, half a batch each.",
                "You saw one worker id in each batch: a task is a whole batch.",
            ),
        ),
    ),
    Question(
        "Features and labels are Python floats, and the net complains about Double. What is the "
        "best fix?",
        (
            Option(
                "`drop_last=True`",
                "That changes how many batches there are, not their dtype.",
            ),
            Option(
                "`net.double()`",
                "It runs, but every weight and every step then works with 64 bits.",
            ),
            Option(
                "Return float32 tensors from the dataset.",
                "The dtype is set once, where the sample is made.",
                right=True,
            ),
        ),
    ),
)
