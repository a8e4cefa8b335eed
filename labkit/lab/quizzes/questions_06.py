"""The quiz of notebook 06: copies, first touches, recycled memory."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "`collate_fn=torch.stack` in a worker, a batch of 8 MB. How often is a byte of it written "
        "before the main process sees it?",
        (
            Option(
                "Once",
                "Stacking writes it once, but into private memory: it cannot be sent from there.",
            ),
            Option(
                "Twice",
                "Once when it is stacked, and once when the pickler copies it to shared memory.",
                right=True,
            ),
            Option(
                "Three times",
                "Nothing is copied in the main process: it maps the memory that was sent.",
            ),
        ),
    ),
    Question(
        "A worker writes a batch into a fresh segment of 1,024 pages. Which page faults are there?",
        (
            Option(
                "None: the segment was made before.",
                "Making it gives addresses. The system gives a page when it is touched.",
            ),
            Option(
                "Those of the worker; the main process finds the pages there.",
                "The pages are there, but not in its page table: it takes faults of its own.",
            ),
            Option(
                "The worker's, when it writes, and the main process's, when it reads.",
                "In the main process they may be fewer: the system enters several pages at once.",
                right=True,
            ),
        ),
    ),
    Question(
        "Why is the arena's memory faster than a fresh segment for each batch?",
        (
            Option(
                "Nothing is copied into it.",
                "The one copy that stacking needs is made in both.",
            ),
            Option(
                "Its pages have been touched before, in both processes.",
                "No page is zeroed and none is entered into a page table again.",
                right=True,
            ),
            Option(
                "It lies in memory of a faster kind.",
                "Both are shared memory of the same kind.",
            ),
        ),
    ),
    Question(
        "You append every batch of an epoch to a list. What does the arena do?",
        (
            Option(
                "It grows: a slot comes back only when the last view of it has died.",
                "Keep copies of what you need of a batch, and it stays small.",
                right=True,
            ),
            Option(
                "It uses the oldest slot again.",
                "Then a batch that you hold would change. Nobody sees a slot twice at once.",
            ),
            Option(
                "It waits until you drop one.",
                "It does not wait. With `arena_limit_bytes` it raises an error when that is met.",
            ),
        ),
    ),
    Question(
        "A collate function takes memory from `labkit.empty_shared`. What is in it?",
        (
            Option("Zeros", "So it is in fresh memory. A slot that is used again is not cleared."),
            Option(
                "Anything: often an earlier batch",
                "So every element has to be written, padding too.",
                right=True,
            ),
            Option(
                "The samples",
                "It knows a shape and a dtype; the collate function writes the samples.",
            ),
        ),
    ),
)
