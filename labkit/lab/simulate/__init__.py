"""A loader on a machine that you do not have: a discrete-event simulation, fed by measured costs.

    costs = simulate.measure(dataset, batch_size=8)          # CPU and waiting told apart
    print(simulate.predict(costs, cores=64, num_workers=16, step_seconds=0.02).sentence)

The model, in short:

- Each batch costs what a batch drawn from the measured ones cost, by layer (`measured`): fetch and
  collate go with the number of samples, the rest is fixed. Each cost is part work of a core, part
  waiting; `metering` tells them apart, by the CPU time of each.
- Work shares the cores and the memory (`shared_cores`), waiting does not.
- Tasks, reorder buffer, prefetch and feeders are as in the loader (`pipeline`); so is a Preloader
  with its link and its device. Several devices have a loader each, on the same cores.
- `bounds` says which part holds it back, and which would be next.

What it leaves out stands in `pipeline`. How far off it is, on settings that a machine can run, says
`python -m labkit.lab.simulate validate`; its table is kept in `VALIDATION.md`.

Before it: `labkit.trace`. After it: the panel `labkit.lab.panels.what_if`.
"""

from __future__ import annotations

from labkit.lab.simulate.from_trace import measured
from labkit.lab.simulate.measured import Costs, Measured
from labkit.lab.simulate.measuring import measure
from labkit.lab.simulate.predicting import Prediction, predict
from labkit.lab.simulate.settings import Settings

__all__ = ["Costs", "Measured", "Prediction", "Settings", "measure", "measured", "predict"]
