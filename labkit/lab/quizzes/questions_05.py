"""The quiz of notebook 05: who sees memory, what keeping costs, and what a kill leaves."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "`t.share_memory_()`, then a process is started with `t` as an argument, then the parent "
        "writes to `t`. What does the child see?",
        (
            Option(
                "The old value: arguments are copied.",
                "What is copied is the handle. The memory behind it is one and the same.",
            ),
            Option(
                "The new value, when it has attached to the memory by its name.",
                "That is `SharedMemory`. A tensor's reducer does it for you, in unpickling.",
            ),
            Option("The new value.", "Both processes map the same memory, at once.", right=True),
        ),
    ),
    Question(
        "You keep 500 batches of 4 tensors each, with the strategy `file_descriptor`. How many "
        "descriptors does that take?",
        (
            Option("500", "Each tensor has a storage of its own, and each storage a descriptor."),
            Option("2,000", "One for each storage that is alive.", right=True),
            Option(
                "None once they are received",
                "Python's mapping, and PyTorch's too, keeps its descriptor as long as it lives.",
            ),
        ),
    ),
    Question(
        "A container has 64 MB of /dev/shm and a memory limit of 8 GB. Why do batches of 100 MB "
        "fit with `arena`?",
        (
            Option(
                "Its segments are memfds: they count as memory, not as room in /dev/shm.",
                "They lie on a mount inside the kernel, whose size nobody has limited.",
                right=True,
            ),
            Option("It sends the bytes through a socket.", "That is `copy`; it would fit as well."),
            Option(
                "Recycled slots need no memory.",
                "They need no *new* memory. The slots themselves must be somewhere.",
            ),
        ),
    ),
    Question(
        "Main process, worker and PyTorch's manager get SIGKILL at once. Whose bytes stay?",
        (
            Option(
                "Those with a name in /dev/shm.",
                "A name is a file: it stays until somebody removes it.",
                right=True,
            ),
            Option(
                "All shared memory: nobody has closed it.",
                "The system closes a dead process's descriptors and mappings. Memory that nobody "
                "has open, maps or can name is gone.",
            ),
            Option("None: the system tidies up.", "It does, but a name is not a process's own."),
        ),
    ),
    Question(
        "`lock = multiprocessing.Lock()` stands at the top of a module, and spawned workers use "
        "it. What happens?",
        (
            Option(
                "They exclude each other: it is a lock for processes.",
                "It would be, if it were one. Each of them has imported the module.",
            ),
            Option(
                "Each worker makes a lock of its own, and all are inside at once.",
                "Give one lock to all of them as an argument.",
                right=True,
            ),
            Option("The second worker fails with an error.", "Nothing fails. That is the trap."),
        ),
    ),
)
