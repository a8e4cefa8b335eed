"""The quiz of notebook 02: what a new process copies, and what it runs again."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "The module with your dataset prints a line when it is imported. A notebook loads 30 "
        "batches with 3 workers under `spawn`. How often does the line appear in all?",
        (
            Option("31 times", "A worker imports once, however many batches it then makes."),
            Option(
                "4 times",
                "The main process imports the module, and so does each of the three workers.",
                right=True,
            ),
            Option("3 times", "The main process has imported it, too: it made the dataset."),
            Option("Once", "So it is under `fork`, where a worker goes on from a copy."),
        ),
    ),
    Question(
        "A dataset's class is defined in a cell of this notebook. What does PyTorch's DataLoader "
        "do under `spawn` with two workers?",
        (
            Option(
                "It works: the workers have a copy of the notebook's memory.",
                "A forked worker has. A spawned one is a fresh interpreter.",
            ),
            Option(
                "It works: pickle sends the class's code along.",
                "Plain pickle writes the class's name only; cloudpickle, which labkit uses, can "
                "send the code.",
            ),
            Option(
                "It fails: a worker looks for the class under its name and finds nothing.",
                "Pickle sent a name, and in the new process nobody has run your cell.",
                right=True,
            ),
        ),
    ),
    Question(
        "A forked worker appends to a list that the main process made. What does the main process "
        "see?",
        (
            Option(
                "The longer list, at once: both share the memory.",
                "They share a page only until one of them writes to it; then that one gets a copy.",
            ),
            Option(
                "The longer list, once the worker has ended.",
                "Nothing is carried back when a process ends; its memory is just given up.",
            ),
            Option(
                "The list as it was.",
                "The worker wrote to its own copy. What is to come back must be sent.",
                right=True,
            ),
        ),
    ),
    Question(
        "A thread of the main process holds a lock when a worker is forked. The dataset takes the "
        "same lock in the worker. What happens?",
        (
            Option(
                "The worker waits for ever.",
                "It has a copy of the held lock, but not the thread that would release it.",
                right=True,
            ),
            Option(
                "It waits until the main process's thread releases the lock.",
                "That thread releases its own process's lock; the worker's is another one since "
                "the fork.",
            ),
            Option(
                "It gets the lock: the thread that holds it is not in this process.",
                "The thread is not, but the lock's memory was copied as it was: locked.",
            ),
        ),
    ),
    Question(
        "Why does a worker under `forkserver`, as labkit sets it up, start sooner than under "
        "`spawn`?",
        (
            Option(
                "It is forked from the main process.",
                "That would be `fork`. The server is a process of its own, started fresh.",
            ),
            Option(
                "It is forked from a server that has imported torch already.",
                "A spawned worker imports torch itself, which takes most of its start.",
                right=True,
            ),
            Option(
                "It does without torch.",
                "It needs torch like any worker, but finds it imported in its memory.",
            ),
        ),
    ),
)
