"""The quiz of notebook 09: events, memory on two streams, ends, the limit of overlap, the queue."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "A preloader copies with `non_blocking=True` from page-locked memory and has no event. Its "
        "values were right in every test. What does that say?",
        (
            Option(
                "It is right: a wrong order would show sooner or later.",
                "In the tests the copies happened to end in time. A larger batch, or a shorter "
                "step, and the step comes first.",
            ),
            Option(
                "Nothing: without an event there is no order between the two streams.",
                "Who comes first is left to chance, as long as nobody waits.",
                right=True,
            ),
            Option(
                "It is right, for the queue hands a batch over only when it is copied.",
                "The queue hands over when the call has returned. The copy is still under way.",
            ),
        ),
    ),
    Question(
        "Why does the training loop's stream wait for the event, and not the program?",
        (
            Option(
                "An event can only be waited for by a stream.",
                "`event.synchronize()` lets the program wait.",
            ),
            Option(
                "So the program goes on and issues the next work, while the device keeps the "
                "order.",
                "The step begins when its batch is there, and is already queued by then.",
                right=True,
            ),
            Option(
                "So the step can begin before the copy ends.",
                "That is what the event prevents, whoever waits for it.",
            ),
        ),
    ),
    Question(
        "A batch was copied on the copy stream, a step on another stream is queued, and the loop "
        "drops the batch. What can happen without `record_stream`?",
        (
            Option(
                "The step fails, for its tensor is gone.",
                "The memory is still there. It holds something else.",
            ),
            Option(
                "Nothing: memory that a queued step needs is never given out.",
                "The allocator knows of the stream on which the tensor was made, and of no other.",
            ),
            Option(
                "The next copy gets that memory, and the step reads the next batch.",
                "It gets it at once, for it is on the stream for which the memory was made.",
                right=True,
            ),
        ),
    ),
    Question(
        "A copy takes 2 ms, a step 5 ms. How long does a batch take, at least, with a preloader?",
        (
            Option("2 ms", "Each batch needs a step, and the device does one after the other."),
            Option("5 ms", "The copy of the next batch is done meanwhile.", right=True),
            Option("7 ms", "That is what it takes without one: copy, step, copy, step."),
        ),
    ),
    Question(
        "The loader takes longer than a step for every batch. What does `queue_size=16` bring?",
        (
            Option(
                "Batches come faster: more are prepared at once.",
                "One thread takes them from the loader, one after the other, however long the "
                "queue is.",
            ),
            Option(
                "Nothing but a claim on memory: the queue is empty whenever a batch is wanted.",
                "It fills only while the loader is faster than the step.",
                right=True,
            ),
            Option(
                "It evens the delays out.",
                "It evens out what is now longer and now shorter than a step. This is always "
                "longer.",
            ),
        ),
    ),
)
