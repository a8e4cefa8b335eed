"""The quiz of notebook 07: the GIL, its switch interval, copies, and who should load."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "A thread multiplies large matrices with numpy. The main thread runs a Python loop, on a "
        "machine with one core. What holds?",
        (
            Option(
                "The loop cannot run until the product is done: numpy is C code.",
                "C code may give up the GIL while it touches no Python object. BLAS does.",
            ),
            Option(
                "The product gives up the GIL, but the two must share the core.",
                "The lock is one question, the cores are another.",
                right=True,
            ),
            Option(
                "Both run at full speed, since the GIL is given up.",
                "That takes a second core, too.",
            ),
        ),
    ),
    Question(
        "A thread pickles a very large list. How soon can another thread run Python code?",
        (
            Option(
                "At the next switch interval",
                "The GIL can be asked for, but only the interpreter's loop answers. pickle is one "
                "long call of C code, which keeps it.",
            ),
            Option(
                "At once: pickle is written in C.",
                "C code keeps the GIL unless it gives it up. pickle handles Python objects all the "
                "time, so it cannot.",
            ),
            Option(
                "When the call returns",
                "Then the interpreter's loop sees that somebody has asked.",
                right=True,
            ),
        ),
    ),
    Question(
        "Under fork, `id(counter)` is the same in the main process and in the child. What does "
        "that say?",
        (
            Option(
                "They share the object.",
                "Write to it in the child, and look here: nothing has changed.",
            ),
            Option(
                "The copy lies at the same address of another address space.",
                "An id names an object only within one process.",
                right=True,
            ),
            Option("The child was not started yet.", "It was: it has told its id."),
        ),
    ),
    Question(
        "A spawned process adds 1 to a plain tensor that it got as an argument. What does the main "
        "process see?",
        (
            Option(
                "The old value, as with every object",
                "So it is with a numpy array. torch pickles a tensor for a process in its own way.",
            ),
            Option(
                "The new value: to be sent, the tensor was moved into shared memory.",
                "Under fork nobody sends it, and the write stays in the child.",
                right=True,
            ),
            Option(
                "An error: a tensor cannot be sent.",
                "It can: a handle to its memory travels.",
            ),
        ),
    ),
    Question(
        "Samples are parsed by Python code. Which loader can use more than one core for that?",
        (
            Option(
                "One with threads",
                "Only one thread at a time runs Python code; the others wait for the GIL.",
            ),
            Option(
                "One with worker processes",
                "Each process has a GIL of its own.",
                right=True,
            ),
            Option(
                "One without workers",
                "One thread runs on one core at a time.",
            ),
        ),
    ),
)
