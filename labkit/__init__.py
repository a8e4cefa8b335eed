"""labkit: a data loader to read, to watch, and to use.

`labkit.DataLoader` takes the arguments of `torch.utils.data.DataLoader` and gives the same batches.
To follow a batch through the code, read on in this order: `loader`, `iteration`, `multiprocess`,
`pool`, `channel`, `startup`, `worker`, `fetch`, `collate`, `feeder`, `sharing`; then `pinning` and
`preload`, which bring it to a `device`, or to a `simulated` one. Beside the way stand `arguments`,
`errors`, `diagnosis`, `messages`, `containers` and `by_value`. What went on in all of them is noted
by `spans`, `logbook`, `recording` and `device_lanes`, and told by `tracing` and `journeys`.
"""

from labkit.collate import default_collate, default_convert
from labkit.loader import DataLoader
from labkit.preload import Preloader
from labkit.sharing import (
    empty_shared,
    get_all_sharing_strategies,
    get_sharing_strategy,
    set_sharing_strategy,
)
from labkit.tracing import trace
from labkit.worker import get_worker_info

__all__ = [
    "DataLoader",
    "Preloader",
    "default_collate",
    "default_convert",
    "empty_shared",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "get_worker_info",
    "set_sharing_strategy",
    "trace",
]

__version__ = "0.1.0"
