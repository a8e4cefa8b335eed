"""A device that this machine simulates, for those who have none, and for a look inside.

`SimulatedDevice` can be given wherever `labkit.device.Device` is asked for.

- `device.py`: the device: copies and steps, pinned memory.
- `tensor.py`: a tensor in its memory.
- `memory.py`: the caching allocator; `host_memory.py`: what is page-locked on the host.
- `streams.py`: streams and events.
- `link.py`: what a copy between the two memories takes, and does.
- `items.py`: what stands in a stream's queue.
- `timeline.py`: who waits for whom, and the engines that take their time.
"""

from labkit.simulated.device import SimulatedDevice
from labkit.simulated.streams import SimulatedEvent, SimulatedStream
from labkit.simulated.tensor import SimulatedTensor
from labkit.simulated.timeline import ENGINES, Operation

__all__ = [
    "ENGINES",
    "Operation",
    "SimulatedDevice",
    "SimulatedEvent",
    "SimulatedStream",
    "SimulatedTensor",
]
