"""Right and wrong answers to the exercises, as learners might give them: a module a notebook.

`RIGHT` has at least two for each exercise, by its id; `WRONG` at least three, each with words that
only its own explanation has. `SLOWLY_WRONG` ones wait for something. What a worker imports must be
light, so this imports no pytest.
"""
