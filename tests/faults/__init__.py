"""Faults, planted one by one: what happens to a loader when something about it breaks.

`episode` says what there is, `gate` and `loading` bring a worker to the stage in which it is to be
hit, `program` is the process that iterates, `running` hits and judges. `special` has what fits into
no grid; `chaos` and `soak` go on at random and for long. `python -m tests.faults` runs all of the
grid and writes README.md.
"""
