"""The quiz of notebook 04: what is in a message, who is asked, when it is pickled, what rides."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "A worker returns `batch[0]`, one image of a batch of 32, and plain pickle writes it. What "
        "crosses?",
        (
            Option("The image", "So it is with labkit's reducer, which looks at what is seen."),
            Option(
                "The memory of all 32 images",
                "A view is pickled with its whole storage. `.clone()` first would mend it.",
                right=True,
            ),
            Option("A handle", "Plain pickle knows none: it takes a reducer that makes one."),
        ),
    ),
    Question(
        "A reducer for `torch.Tensor` is in the pickler's dispatch table. Who takes apart an "
        "instance of a subclass that is not in there?",
        (
            Option(
                "That reducer, since the instance is a tensor",
                "The table is asked for the exact type; it does not know of subclasses.",
            ),
            Option(
                "The instance's own `__reduce_ex__`",
                "The table has nothing for its type, so the object is asked.",
                right=True,
            ),
            Option("Nobody: it raises a KeyError", "Pickle goes on to ask the object."),
        ),
    ),
    Question(
        "`queue.put(tensor)` has come back. What is `tensor.is_shared()`?",
        (
            Option(
                "True, for it has been sent",
                "It stands in a list of this process; nothing has been pickled yet.",
            ),
            Option(
                "False at first; True once the feeder thread has pickled it",
                "The reducer moves the storage, and the feeder's pickler calls the reducer.",
                right=True,
            ),
            Option(
                "False for ever: the receiver gets a copy",
                "Sender and receiver map one memory, so this tensor lies in it, too.",
            ),
        ),
    ),
    Question(
        "A dataset fills one tensor again and again and returns it each time. PyTorch's loader "
        "has one worker and no collate function. What is in the batches that you keep?",
        (
            Option(
                "Each its own values",
                "That would need a copy for each; a tensor that is shared already is not copied.",
            ),
            Option(
                "All the same, the latest values",
                "They are views of one memory, into which the worker goes on writing.",
                right=True,
            ),
            Option("An error", "Nobody notices: that makes it a bad mistake to look for."),
        ),
    ),
    Question(
        "A descriptor was sent over a Unix socket with `send_fds`. What does the receiver have?",
        (
            Option("The same number", "A number means something in its own process only."),
            Option(
                "A copy of the file",
                "What one side writes, the other reads: there is one file, and one memory.",
            ),
            Option(
                "A number of its own for the same open file",
                "The kernel makes it when the message is received.",
                right=True,
            ),
        ),
    ),
)
