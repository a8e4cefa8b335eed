"""The quiz of notebook 08: when copies block, what overlaps, who reads too early, who pins."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "`batch` comes straight from `torch.stack`. What does "
        '`batch.to("cuda", non_blocking=True)` do?',
        (
            Option(
                "It returns at once, and the copy is made meanwhile.",
                "So it would from pinned memory. `torch.stack` gives pageable memory.",
            ),
            Option(
                "It returns when the batch has been read.",
                "Pageable memory may be moved, so the driver takes the bytes out of it before the "
                "call returns.",
                right=True,
            ),
            Option(
                "It raises an error: the memory is not pinned.",
                "Nobody complains: it is slow, and that is all that can be noticed.",
            ),
        ),
    ),
    Question(
        "Copies and steps are on two streams, without an event. What can be wrong?",
        (
            Option(
                "Nothing: a device does its work in the order of the calls.",
                "That holds within one stream. Between two there is no order.",
            ),
            Option(
                "It is slower, for the streams wait for each other.",
                "They do not: that is why they overlap, and why something can go wrong.",
            ),
            Option(
                "A step may read memory before its batch is there.",
                "It may also go well, for a long time: nothing tells you.",
                right=True,
            ),
        ),
    ),
    Question(
        "After `pinned.copy_(batch)` and `there = pinned.to(device, non_blocking=True)` on one "
        "stream you write the next batch into `pinned`. Is `there` right?",
        (
            Option(
                "Yes: the call has returned.",
                "It returned before the copy was made. What it will read is what is there then.",
            ),
            Option(
                "Not for sure: first wait on the host for an event behind the copy.",
                "The host writes, so the host has to wait: `event.synchronize()`.",
                right=True,
            ),
            Option(
                "Yes, if the current stream waits for an event behind the copy.",
                "Then the device's later work waits. The host does not, and it is the host that "
                "writes.",
            ),
        ),
    ),
    Question(
        "Pinned memory, two streams, events, and still nothing overlaps. What may be the reason?",
        (
            Option(
                "The loop reads `loss.item()` before it issues the next copy.",
                "Then the device has nothing to copy while it computes. Issue the copy first.",
                right=True,
            ),
            Option(
                "The events: a stream that waits for one stops the other.",
                "Only the stream that waits stops, until the copy before that event is done.",
            ),
            Option(
                "Pinned memory is not read while a step runs.",
                "It is: the copy engine and the compute units work side by side.",
            ),
        ),
    ),
    Question(
        "Why not pin everything?",
        (
            Option(
                "Pinned memory is slower for the host.",
                "Reading and writing it costs the same.",
            ),
            Option(
                "The system cannot move it or swap it out, and pinning takes time.",
                "So a loader pins few pieces, once, and uses them again.",
                right=True,
            ),
            Option(
                "Only tensors of the dataset can be pinned.",
                "Any tensor in host memory can be copied to pinned memory.",
            ),
        ),
    ),
)
