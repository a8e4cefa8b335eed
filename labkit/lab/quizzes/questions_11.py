"""The quiz of notebook 11: who hears of a death, what waits, what an exit code says, who closes."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "A training job stands still. Its worker is there, without work, in "
        "`index_queue.get`. What do you look at first?",
        (
            Option(
                "What the worker printed.",
                "It has done its task and lost the result: a feeder thread prints an error that "
                "it cannot send.",
                right=True,
            ),
            Option(
                "Its memory: it has been killed.",
                "One that was killed stands nowhere. This one asks for its next task.",
            ),
            Option(
                "Locks that were held when it was forked.",
                "Then it would stand at that lock, inside the dataset.",
            ),
        ),
    ),
    Question(
        "A worker calls `os._exit(0)` in the middle of a batch. Why does PyTorch's loader tell of "
        "it later than of a SIGKILL?",
        (
            Option(
                "An exit needs time to write its buffers.",
                "`os._exit` writes none. The process is gone at once.",
            ),
            Option(
                "The system sends SIGCHLD only after a signal.",
                "It is sent for every end of a child, whatever the reason.",
            ),
            Option(
                "Its SIGCHLD handler takes exit code 0 for a peaceful end.",
                "So the news comes with the next look at the workers, every 5 seconds.",
                right=True,
            ),
        ),
    ),
    Question(
        "A worker's exit code is -9 and nobody has called `kill`. What is likely?",
        (
            Option(
                "The dataset called `sys.exit(-9)`.",
                "Exit codes are 0 to 255: that one would have come as 247.",
            ),
            Option(
                "The system ran out of memory and chose it.",
                "Signal 9 is SIGKILL, which the system sends then. Its log (`dmesg`) tells.",
                right=True,
            ),
            Option(
                "Shared memory was full.",
                "A write to a page that cannot be had gives SIGBUS, which is signal 7.",
            ),
        ),
    ),
    Question(
        "The main process is killed by SIGKILL. Who ends the workers?",
        (
            Option(
                "The system ends the children of a dead process.",
                "It gives them a new parent, and they go on.",
            ),
            Option(
                "`atexit`, which ends daemon processes.",
                "Nothing of Python's runs in a process that is killed.",
            ),
            Option(
                "They must notice it themselves.",
                "PyTorch's look now and then who their parent is; labkit's read an end-of-file.",
                right=True,
            ),
        ),
    ),
    Question(
        "Memory of the workers goes up all through the first epoch, though the dataset only reads "
        "a list of file names. What mends it?",
        (
            Option(
                "`gc.disable()` in the workers.",
                "It is not the collector: each reference that is counted writes to its object.",
            ),
            Option(
                "Keeping the names in one array.",
                "It has one count for all of them, and its elements have none.",
                right=True,
            ),
            Option(
                "`persistent_workers=False`.",
                "That starts anew each epoch, and copies the pages anew, too.",
            ),
        ),
    ),
)
