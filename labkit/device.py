"""What the Preloader asks of a device, and the accelerator's answer to it.

A device is a few words: copy this tensor, on that stream, and let this stream wait for that event.
They are PyTorch's own, so `torch.Stream` and `torch.Event` serve as they are; `AcceleratorDevice`
adds what PyTorch has in several places, and `labkit.simulated` has a device with the same words
that needs no accelerator.

Before it: `pinning.py`. After it: `preload.py`. Mirrors: torch.accelerator, torch.Stream,
torch.Event; cudaHostRegister of the CUDA runtime for memory that another process made.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol, runtime_checkable

import torch

__all__ = ["AcceleratorDevice", "Device", "DeviceTensor", "Event", "Stream", "find_device"]


def find_device(device: Device | torch.device | str | int | None = None) -> Device | None:
    """The device that is meant; None for the CPU, to which nothing need be copied.

    Args:
        device: None for the current accelerator, if there is one; else PyTorch's name or number of
            a device, or a `Device`, which is taken as it is.

    Raises:
        RuntimeError: this machine, or this PyTorch, has no such device.
    """
    if device is None:
        if not torch.accelerator.is_available():
            return None
        return AcceleratorDevice(torch.device(torch.accelerator.current_device_index()))
    if isinstance(device, Device):
        return device
    if not isinstance(device, (torch.device, str, int)):
        raise TypeError(
            f"device is {device!r}: write a name ('cuda', 'cuda:1'), a number, a torch.device, a "
            "device of labkit.simulated, or None for the current accelerator."
        )
    if isinstance(device, int):  # torch.device(0) itself needs an accelerator
        device = f"{_accelerator_type() or 'cuda'}:{device}"
    wanted = torch.device(device)
    return None if wanted.type == "cpu" else AcceleratorDevice(_with_index(wanted))


class Event(Protocol):
    """A point in a stream's work."""

    def query(self) -> bool:
        """Whether the stream has passed it."""

    def synchronize(self) -> None:
        """Let the calling thread wait until it has."""


class Stream(Protocol):
    """A queue of work for a device, done in order; work of several streams may overlap."""

    def wait_event(self, event: Any, /) -> None:
        """Let the work that is issued from now on wait for an event. The caller does not wait."""

    def record_event(self, event: Any = None, /) -> Event:
        """An event (the given one, or a new one) after the work that has been issued until now."""

    def synchronize(self) -> None:
        """Let the calling thread wait until all that has been issued is done."""

    def query(self) -> bool:
        """Whether all that has been issued is done."""


class DeviceTensor(Protocol):
    """A tensor in a device's memory: a `torch.Tensor`, or a simulated one."""

    @property
    def shape(self) -> torch.Size: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def nbytes(self) -> int: ...
    def cpu(self) -> torch.Tensor:
        """A copy in the host's memory, made on the current stream; the caller waits for it."""

    def record_stream(self, stream: Any, /) -> None:
        """Keep this memory, once the tensor is dropped, until `stream` has done its work so far.

        Without it, memory is free for new work of the stream on which it was allocated.
        """


@runtime_checkable
class Device(Protocol):
    """A device as the Preloader knows it."""

    @property
    def name(self) -> str:
        """What a figure or a message calls it: "cuda:0", "simulated device"."""

    @property
    def is_simulated(self) -> bool: ...

    def new_stream(self) -> Stream: ...

    def timing_event(self) -> Any:
        """An event that is not recorded yet, and then can tell the time between it and another."""

    def current_stream(self) -> Stream:
        """The stream to which this thread issues its work."""

    def stream(self, stream: Any, /) -> AbstractContextManager[object]:
        """For the length of a `with`, this thread issues its work to `stream`."""

    def to_device(self, tensor: torch.Tensor, non_blocking: bool = True) -> DeviceTensor:
        """A copy on the device, made on the current stream.

        With `non_blocking` the call returns before the copy is made, if `tensor` is pinned.
        """

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies in memory that is page-locked for this device."""

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """A page-locked copy; the tensor itself if it is pinned."""

    def lock_pages(self, address: int, nbytes: int) -> bool:
        """Page-lock memory of this process that is there already; whether that worked.

        It must be unlocked before it is unmapped.
        """

    def unlock_pages(self, address: int) -> None:
        """Undo `lock_pages`, once no copy from or to this memory is under way."""

    def synchronize(self) -> None:
        """Let the calling thread wait until all work of all streams is done."""

    def record_function(self, name: str) -> AbstractContextManager[object]:
        """For the length of a `with`, traces know this thread's work by that name."""


class AcceleratorDevice:
    """A device of PyTorch's current accelerator: CUDA, ROCm, XPU and so on.

    Page-locking of memory that is there already is for CUDA (and ROCm, which goes by its name).

    Args:
        device: with its index.
    """

    is_simulated = False

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.name = str(device)

    def __repr__(self) -> str:
        return f"AcceleratorDevice({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AcceleratorDevice) and other.device == self.device

    def __hash__(self) -> int:
        return hash(self.device)

    def new_stream(self) -> torch.Stream:
        return torch.Stream(device=self.device)

    def timing_event(self) -> torch.Event:
        return torch.Event(self.device, enable_timing=True)

    def current_stream(self) -> torch.Stream:
        return torch.accelerator.current_stream(self.device)

    def stream(self, stream: torch.Stream) -> AbstractContextManager[object]:
        return stream  # it is a context manager itself, and makes its device the current one

    def to_device(self, tensor: torch.Tensor, non_blocking: bool = True) -> torch.Tensor:
        return tensor.to(self.device, non_blocking=non_blocking)

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.is_pinned()

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory()

    def lock_pages(self, address: int, nbytes: int) -> bool:
        if self.device.type != "cuda":
            return False
        with torch.cuda.device(self.device):
            if int(_cuda_runtime().cudaHostRegister(address, nbytes, 0)) == 0:
                return True
            self._forget_last_error()
        return False

    def unlock_pages(self, address: int) -> None:
        with torch.cuda.device(self.device):
            if int(_cuda_runtime().cudaHostUnregister(address)) != 0:
                self._forget_last_error()

    def _forget_last_error(self) -> None:
        # CUDA keeps a refusal as this thread's last error, and whoever launches the next kernel
        # would be told of it. PyTorch has no cudaGetLastError; a kernel of our own asks it.
        with suppress(RuntimeError):
            torch.zeros(1, device=self.device).add_(1)

    def synchronize(self) -> None:
        torch.accelerator.synchronize(self.device)

    def record_function(self, name: str) -> AbstractContextManager[object]:
        return torch.profiler.record_function(name)


def _cuda_runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _accelerator_type() -> str | None:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return None if accelerator is None else accelerator.type


def _with_index(wanted: torch.device) -> torch.device:
    """The device with the index that is meant; an error if it is not there."""
    there = _accelerator_type()
    if wanted.type != there:
        has = "no accelerator" if there is None else f"an accelerator of type {there!r}"
        built = ""
        if wanted.type == "cuda" and not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
            built = ", which was built without CUDA"
        raise RuntimeError(
            f"There is no device {str(wanted)!r}: PyTorch {torch.__version__}{built}, finds {has} "
            f"on this machine. Write device=None to use what is there (without an accelerator the "
            "batches stay on the CPU), or device=labkit.simulated.SimulatedDevice() to try it out."
        )
    if wanted.index is None:
        # PyTorch's stubs say that it never is; of torch.device("cuda") it is.
        current = torch.accelerator.current_device_index()  # type: ignore[unreachable]
        return torch.device(wanted.type, current)
    count = torch.accelerator.device_count()
    if wanted.index >= count:
        raise RuntimeError(
            f"There is no device {str(wanted)!r}: this process sees {count} of type {there!r}, "
            "numbered from 0. (For CUDA, CUDA_VISIBLE_DEVICES chooses which those are.)"
        )
    return wanted
