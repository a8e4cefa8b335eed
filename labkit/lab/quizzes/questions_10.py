"""The quiz of notebook 10: find the bottleneck, change it, and see when nothing is left to gain."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "A trace says that the training loop waits most of the time, and that the workers are in "
        "fetch nearly all of it. What do you change first?",
        (
            Option(
                "`pin_memory=True`: copies to the device get faster.",
                "Copies are not what is waited for. The trace would show a busy copy lane.",
            ),
            Option(
                "What a sample costs, or how many workers share it.",
                "Fetch is the layer that others wait for. Make it cheaper, or do more of it at "
                "once if there are cores.",
                right=True,
            ),
            Option(
                "`prefetch_factor`: more batches are ready in advance.",
                "Nothing lies ready where each batch is awaited. A longer queue evens delays out; "
                "it makes no work less.",
            ),
        ),
    ),
    Question(
        "Loading a batch takes 30 ms of a core, and nothing is waited for. A step takes 10 ms, the "
        "machine has 2 cores. How many workers keep the device busy?",
        (
            Option("3", "They would need three cores: 30 ms of work for each step of 10 ms."),
            Option("2", "Two cores give a batch every 15 ms. The step needs one every 10 ms."),
            Option(
                "No number does: make a sample cheaper.",
                "Two cores work 20 ms during a step, and a batch takes 30.",
                right=True,
            ),
        ),
    ),
    Question(
        "What does `Image.draft` leave out?",
        (
            Option(
                "The work on pixels that the size asked for does not need.",
                "The decoder gives 1/2, 1/4 or 1/8 of the size straight away.",
                right=True,
            ),
            Option(
                "The reading of the file.",
                "The file is read as before. It is decoding that gets cheaper.",
            ),
            Option(
                "The second colour channel.",
                "All three channels stay. There are fewer pixels.",
            ),
        ),
    ),
    Question(
        "Samples are uint8, and become float32 on the device. What is a quarter of what it was?",
        (
            Option(
                "The work of decoding.",
                "The same pixels are decoded. Only the division by 255 is done elsewhere.",
            ),
            Option(
                "The bytes that are collated, sent and copied.",
                "One byte a value in place of four, on the whole way.",
                right=True,
            ),
            Option("The time a batch.", "Only if bytes were what it waited for."),
        ),
    ),
    Question(
        "Random crops are drawn in the workers. Which arguments make two runs give the same ones?",
        (
            Option(
                "A `generator` with the same seed and the same `num_workers`.",
                "The base seed comes from the generator, and worker i draws from base seed + i. "
                "With another number of workers, other samples meet other numbers.",
                right=True,
            ),
            Option(
                "`torch.manual_seed` inside the dataset's `__init__`.",
                "It runs in the main process. Each worker is seeded anew when it starts.",
            ),
            Option(
                "`shuffle=False`.",
                "Then the order is the same. The crops are drawn all the same.",
            ),
        ),
    ),
)
