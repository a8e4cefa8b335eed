"""The quiz of notebook 00: what the doctor's readings mean for loading."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "In a container, `os.cpu_count()` says 64, the affinity allows all 64, and the cgroup's "
        "quota is 2 cores. How many worker processes can compute at the same time, on average?",
        (
            Option(
                "64",
                "The host has so many, but the quota stops all processes of the container together "
                "once they have used two cores' time.",
            ),
            Option(
                "2",
                "The smallest of the limits counts, and here that is the quota.",
                right=True,
            ),
            Option(
                "32, each at half speed",
                "You may start 32, but they share two cores' time: each gets a sixteenth of one.",
            ),
        ),
    ),
    Question(
        "`/dev/shm` has 64 MB, and each batch 100 MB. With which of labkit's sharing strategies "
        "does a worker's batch not fit?",
        (
            Option(
                "`arena`",
                "Its segments have no name in there: memory limits them, the size of `/dev/shm` "
                "does not.",
            ),
            Option(
                "`file_system`",
                "Its segments are files with a name in `/dev/shm`, and that is full at 64 MB.",
                right=True,
            ),
            Option(
                "`file_descriptor`",
                "What travels is a descriptor of a segment without a name, which needs no room in "
                "`/dev/shm`.",
            ),
            Option(
                "`copy`",
                "It uses no shared memory: all bytes are in the message, through the result queue.",
            ),
        ),
    ),
    Question(
        "At most 1,024 files may be open. You keep 2,000 batches in a list, each a tensor of its "
        "own that came from a worker. Which sharing strategy fails?",
        (
            Option(
                "`file_descriptor`",
                "It holds one open file for every storage that is alive.",
                right=True,
            ),
            Option(
                "`file_system`",
                "It opens a file only to map it, and closes it then: what stays is the mapping.",
            ),
            Option(
                "`arena`",
                "Its many slots lie in a few long-lived segments: few open files, however many "
                "batches.",
            ),
        ),
    ),
    Question(
        "Under a figure it says: “no difference beyond the spread on this machine”. What does "
        "that mean?",
        (
            Option(
                "The two settings are equally fast.",
                "That was not shown. A difference may be there, smaller than what the repeats can "
                "tell.",
            ),
            Option(
                "The repeats differ so much among themselves that chance alone could have made "
                "the difference seen.",
                "More repeats or a quieter machine may yet show one.",
                right=True,
            ),
            Option(
                "The measurement failed and must be run again until there is a difference.",
                "It went well. Who repeats until a difference shows will find one by chance.",
            ),
        ),
    ),
)
