"""A device that this machine simulates: the Preloader, its speed and its races without a GPU.

Copies take the time of a link of so many GB/s, steps the time that they are given, and both really
happen in memory of the device's own. What is done in the wrong order gives wrong values here too:

- A copy from pageable memory blocks the caller, whatever `non_blocking` says: the driver first
  stages it in pinned memory of its own. One from pinned memory returns at once, and the source is
  read when the copy runs.
- A copy lands, and a step reads its inputs, near the end of its time. In reality both go on all
  the while, so a race may go well; here it goes wrong every time.

Before it: `preload.py`, which knows only `labkit.device.Device`. After it: `link.py`,
`memory.py`, `streams.py`.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import torch

from labkit.simulated.host_memory import HostMemory
from labkit.simulated.items import Work
from labkit.simulated.link import Copy, Link, check_dense
from labkit.simulated.memory import Allocator
from labkit.simulated.streams import SimulatedEvent, SimulatedStream
from labkit.simulated.tensor import SimulatedTensor
from labkit.simulated.timeline import COMPUTE, Operation, Timeline

__all__ = ["SimulatedDevice"]

_END_SECONDS = 2.0  # for each thread, which an operation's effect may still hold up


class SimulatedDevice:
    """A simulated device, with the methods of `labkit.device.Device` and some to run steps.

    The default rates are those of one NVIDIA H200 (torch 2.11, batches of 77 MB, measured once):
    host to device 53.6 GB/s pinned and 6.3 GB/s pageable; a copy's call returned after 44 µs. The
    way back was not measured and is taken to be as fast.

    Args:
        h2d_gb_per_s: 10⁹ bytes a second from pinned memory to the device.
        pageable_gb_per_s: from and to memory that is not pinned.
        d2h_gb_per_s: from the device to pinned memory.
        launch_us: microseconds that a call takes which issues work.
        slow_motion: all times above, and those of steps, are that many times longer. The bytes
            really move, by this machine's own memory copy; where that is slower than the simulated
            link (one core of a laptop does 5 to 10 GB/s), only a slowed-down device keeps the
            proportions.
        capacity_bytes: of device memory, which lies in this machine's.

    Attributes:
        on_operation: each of these is called with every `Operation` that has ended, before
            anybody who waits for it goes on, in a thread of the device.
    """

    is_simulated = True

    def __init__(
        self,
        h2d_gb_per_s: float = 53.6,
        pageable_gb_per_s: float = 6.3,
        d2h_gb_per_s: float = 53.6,
        *,
        launch_us: float = 44.0,
        slow_motion: float = 1.0,
        capacity_bytes: int = 1 << 30,
    ) -> None:
        if not slow_motion > 0 or launch_us < 0 or capacity_bytes < 0:
            raise ValueError("slow_motion must be above 0; launch_us and capacity_bytes not below.")
        self.name = "simulated device"
        self.slow_motion = slow_motion
        self.on_operation: list[Callable[[Operation], None]] = []
        self._host = HostMemory()
        self._link = Link(h2d_gb_per_s, pageable_gb_per_s, d2h_gb_per_s, self._host)
        self._launch = launch_us * 1e-6 * slow_motion
        self._timeline = Timeline(_reporter(weakref.ref(self)))
        self.allocator = Allocator(capacity_bytes, self._timeline)
        self._default_stream = SimulatedStream(self._timeline, "default stream")
        self._streams = 0
        self._here = _Here()
        weakref.finalize(self, self._timeline.end).atexit = False

    def __repr__(self) -> str:
        h2d = self._link.h2d_gb_per_s
        return f"SimulatedDevice({h2d} GB/s from pinned memory, slow_motion={self.slow_motion})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A simulated device, and what lies in its memory, stays in its process: send host "
            "tensors (`tensor.cpu()`), and make a device in the process that needs one."
        )

    # Streams

    def new_stream(self) -> SimulatedStream:
        """A stream of its own."""
        self._streams += 1
        return SimulatedStream(self._timeline, f"stream {self._streams}")

    def timing_event(self) -> SimulatedEvent:
        """An event that is not recorded yet."""
        return SimulatedEvent(self._timeline)

    def current_stream(self) -> SimulatedStream:
        """The stream to which this thread issues its work: at first the default one."""
        stream = self._here.stream
        return self._default_stream if stream is None else stream

    @contextmanager
    def stream(self, stream: SimulatedStream) -> Iterator[None]:
        """For the length of a `with`, this thread issues its work to `stream`."""
        before, self._here.stream = self._here.stream, stream
        try:
            yield
        finally:
            self._here.stream = before

    @contextmanager
    def record_function(self, name: str) -> Iterator[None]:
        """For the length of a `with`, operations that this thread issues have that name."""
        before, self._here.name = self._here.name, name
        try:
            yield
        finally:
            self._here.name = before

    def synchronize(self) -> None:
        """Wait until all work of all streams is done.

        Raises:
            RuntimeError: some of it failed and nobody was told yet, or the device was closed.
        """
        self._timeline.synchronize()

    # Copies and steps

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> SimulatedTensor:
        """Memory for a tensor, for work of the current stream; what it holds is left to chance.

        Raises:
            torch.OutOfMemoryError: the device's memory is used up.
        """
        self._timeline.check()
        size = torch.Size(shape)
        block = self.allocator.allocate(size.numel() * dtype.itemsize, self.current_stream())
        return SimulatedTensor(self, block, size, dtype)

    def to_device(self, tensor: torch.Tensor, non_blocking: bool = True) -> SimulatedTensor:
        """A copy of a host tensor, made on the current stream."""
        check_dense(tensor)
        return self.empty(tensor.shape, tensor.dtype).copy_(tensor, non_blocking)

    def run(
        self,
        function: Callable[..., torch.Tensor | float],
        *tensors: SimulatedTensor,
        seconds: float,
        shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float32,
        name: str = "step",
    ) -> SimulatedTensor:
        """A step on the current stream: takes its time, then computes `function` of its inputs.

        Args:
            function: is given host tensors over the inputs' memory as it is near the end of the
                step, and returns a tensor or a number.
            seconds: that the step takes (times `slow_motion`), or longer if `function` does.
            shape, dtype: of the result, whose memory is allocated now.
        """
        for tensor in tensors:
            if getattr(tensor, "device", None) is not self:
                raise TypeError(
                    "A step works on tensors of its own device, and was given a "
                    f"{type(tensor).__name__}: copy it with to_device() first."
                )
        if not seconds >= 0:
            raise ValueError(f"seconds is {seconds}: a step cannot take less than no time.")
        result = self.empty(shape, dtype)
        # The memory is handed on and not the tensors: work that is under way keeps none alive.
        inputs, output = [tensor.memory for tensor in tensors], result.memory
        self._issue(COMPUTE, "step", seconds, lambda: _store(function(*inputs), output), name)
        return result

    def copy_to_device(self, to: SimulatedTensor, source: torch.Tensor, non_blocking: bool) -> None:
        """What `SimulatedTensor.copy_` does."""
        self._copy(self._link.to_device(to.memory, source), non_blocking)

    def copy_to_host(self, source: SimulatedTensor, non_blocking: bool) -> torch.Tensor:
        """What `SimulatedTensor.to_host` does."""
        copy = self._link.to_host(source.memory, pinned=non_blocking)
        self._copy(copy, non_blocking)
        return copy.to

    def _copy(self, copy: Copy, non_blocking: bool) -> None:
        self._issue(copy.engine, "copy", copy.seconds, copy.carry_out, nbytes=copy.to.nbytes)
        if not (copy.pinned and non_blocking):
            self.current_stream().synchronize()

    def _issue(
        self,
        engine: str,
        kind: str,
        seconds: float,
        action: Callable[[], object],
        name: str = "",
        nbytes: int = 0,
    ) -> None:
        began, stream = time.monotonic(), self.current_stream()
        name = self._here.name or name or kind
        work = Work(engine, kind, seconds * self.slow_motion, action, name, stream, nbytes)
        self._timeline.issue(stream, work)
        if (left := began + self._launch - time.monotonic()) > 0:
            time.sleep(left)

    # Page-locked host memory

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies in memory that this device, or a real one, has page-locked."""
        return self._host.is_pinned(tensor)

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A page-locked copy; the tensor itself if it is pinned."""
        if self.is_pinned(tensor):
            return tensor
        check_dense(tensor)
        return self._host.zeros(tensor.shape, tensor.dtype).copy_(tensor.detach())

    def lock_pages(self, address: int, nbytes: int) -> bool:
        """Count memory as page-locked from now on; False if some of it is so counted already."""
        return self._host.lock(address, nbytes)

    def unlock_pages(self, address: int) -> None:
        """Undo `lock_pages`. A copy from there that is still under way fails."""
        self._host.unlock(address)

    # Memory

    def memory_allocated(self) -> int:
        """Bytes of the tensors that live."""
        return self._after_collecting().allocated

    def memory_reserved(self) -> int:
        """Bytes of all memory that was taken, also what is kept for the next tensor."""
        return self._after_collecting().reserved

    def max_memory_reserved(self) -> int:
        """The most that was ever reserved."""
        return self._after_collecting().max_reserved

    def empty_cache(self) -> None:
        """Give back what no tensor uses."""
        self._timeline.check()
        with self._timeline.lock:
            self.allocator.empty_cache()

    def _after_collecting(self) -> Allocator:
        self._timeline.check()
        with self._timeline.lock:
            self.allocator.collect()
        return self.allocator

    # The end

    @property
    def worst_lag(self) -> float:
        """By how many seconds, at most, this machine was late to show what the device did."""
        return self._timeline.worst_lag

    def close(self) -> None:
        """End the device's threads; what is under way is dropped, whoever waits gets an error.

        A step's function that hangs is not waited for.
        """
        self._timeline.end()
        self._timeline.join(_END_SECONDS)

    def __enter__(self) -> SimulatedDevice:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _Here(threading.local):
    stream: SimulatedStream | None = None
    name: str = ""


def _reporter(
    device: weakref.ReferenceType[SimulatedDevice],
) -> Callable[[Operation], None]:
    """Calls the device's `on_operation` without keeping it alive."""

    def report(operation: Operation) -> None:
        listening = device()
        for listener in list(listening.on_operation) if listening is not None else ():
            listener(operation)

    return report


def _store(value: torch.Tensor | float, output: torch.Tensor) -> None:
    tensor = torch.as_tensor(value)
    if tensor.shape != output.shape:
        raise ValueError(
            f"its function returned shape {tuple(tensor.shape)}, and run(shape=…) was told "
            f"{tuple(output.shape)}"
        )
    output.copy_(tensor.detach())
