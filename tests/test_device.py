"""Finding a device, and the accelerator's: for real where there is one, by stand-ins elsewhere."""

import ctypes

import pytest
import torch

from labkit.device import AcceleratorDevice, Device, find_device
from labkit.sharing.segment import Segment
from labkit.simulated import SimulatedDevice

HAS_ACCELERATOR = torch.accelerator.is_available()
needs_accelerator = pytest.mark.skipif(
    not HAS_ACCELERATOR, reason="no accelerator on this machine to try it on"
)
needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device on this machine to try it on"
)


@pytest.fixture
def two_gpus(monkeypatch):
    """PyTorch as it looks where two CUDA devices are and the second is the current one."""
    there = torch.device("cuda")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: there)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 1)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)


class CudaRuntime:
    """Stands for `torch.cuda.cudart()`: page-locks what it is told, but refuses `refused`."""

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}
        self.refused: set[int] = set()

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:  # noqa: N802
        if address in self.refused or address in self.locked:
            return 712  # cudaErrorHostMemoryAlreadyRegistered
        self.locked[address] = nbytes
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        return 0 if self.locked.pop(address, None) else 713


@pytest.fixture
def runtime(monkeypatch):
    runtime = CudaRuntime()
    runtime.launches = 0

    class Scratch:
        def add_(self, number):
            runtime.launches += 1
            raise RuntimeError("CUDA error: part or all of the memory is already mapped")

    real_zeros = torch.zeros

    def zeros(*size, device=None, **options):
        return Scratch() if device is not None else real_zeros(*size, **options)

    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    monkeypatch.setattr(torch, "zeros", zeros)
    return runtime


# Which device is meant


@pytest.mark.skipif(HAS_ACCELERATOR, reason="there is an accelerator")
def test_without_an_accelerator_there_is_no_device():
    assert find_device() is None


@pytest.mark.parametrize("name", ["cpu", "cpu:0", torch.device("cpu")])
def test_the_cpu_needs_no_device(name):
    assert find_device(name) is None


def test_a_device_is_taken_as_it_is():
    with SimulatedDevice() as device:
        assert find_device(device) is device


@pytest.mark.skipif(HAS_ACCELERATOR, reason="there is an accelerator")
@pytest.mark.parametrize("name", ["cuda", "cuda:1", 0, torch.device("cuda"), "xpu"])
def test_a_device_that_is_not_there_is_refused_in_words(name):
    with pytest.raises(RuntimeError, match="finds no accelerator") as caught:
        find_device(name)
    assert "device=None" in str(caught.value)
    assert "SimulatedDevice" in str(caught.value)


@pytest.mark.parametrize("thing", [1.5, object(), ["cuda"], torch.ones(1)])
def test_what_is_no_device_at_all_is_refused_in_words(thing):
    with pytest.raises(TypeError, match="write a name"):
        find_device(thing)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("wanted", "name"),
    [("cuda", "cuda:1"), ("cuda:0", "cuda:0"), (0, "cuda:0"), (torch.device("cuda:1"), "cuda:1")],
    ids=str,
)
def test_a_name_without_number_means_the_current_device(wanted, name):
    device = find_device(wanted)
    assert device.name == name
    assert not device.is_simulated
    assert isinstance(device, Device)


@pytest.mark.usefixtures("two_gpus")
def test_a_number_that_is_too_high_and_another_kind_are_refused_in_words():
    with pytest.raises(RuntimeError, match="sees 2 of type 'cuda'"):
        find_device("cuda:2")
    with pytest.raises(RuntimeError, match="an accelerator of type 'cuda'"):
        find_device("xpu:0")


# Page-locking


def test_pages_are_locked_and_unlocked(runtime):
    device = AcceleratorDevice(torch.device("cuda:0"))
    assert device.lock_pages(4096, 8192)
    assert runtime.locked == {4096: 8192}
    device.unlock_pages(4096)
    assert runtime.locked == {}
    assert runtime.launches == 0


def test_a_refused_lock_is_told_and_no_later_kernel_hears_of_it(runtime):
    device = AcceleratorDevice(torch.device("cuda:0"))
    runtime.refused.add(4096)
    assert not device.lock_pages(4096, 8192)
    assert runtime.launches == 1  # it took CUDA's last error upon itself
    device.unlock_pages(4096)
    assert runtime.launches == 2


def test_other_accelerators_lock_no_pages_of_others(runtime):
    assert not AcceleratorDevice(torch.device("xpu:0")).lock_pages(4096, 8192)
    assert runtime.locked == {}


# With an accelerator


@needs_accelerator
def test_the_current_accelerator_is_found():
    device = find_device()
    assert isinstance(device, AcceleratorDevice)
    assert device.device.index == torch.accelerator.current_device_index()


@needs_accelerator
def test_a_batch_goes_over_on_a_stream_of_its_own():
    device = find_device()
    batch = device.pin(torch.arange(1 << 20))
    assert device.is_pinned(batch)
    assert not device.is_pinned(torch.ones(2))
    stream = device.new_stream()
    with device.stream(stream), device.record_function("batch 0"):
        assert device.current_stream() == stream
        there = device.to_device(batch)
        copied = stream.record_event()
    assert device.current_stream() != stream
    device.current_stream().wait_event(copied)
    there.record_stream(device.current_stream())
    assert torch.equal(there.cpu(), batch)
    copied.synchronize()
    assert copied.query()
    device.synchronize()
    assert stream.query()


@needs_cuda
def test_a_segment_is_page_locked_where_it_lies():
    device = find_device("cuda")
    segment = Segment.create(1 << 20)
    exporter = segment.exporter(0, 1 << 20)
    segment.close()
    address = ctypes.addressof(exporter)
    tensor = torch.frombuffer(exporter, dtype=torch.uint8)
    assert not device.is_pinned(tensor)
    assert device.lock_pages(address, 1 << 20)
    assert device.is_pinned(tensor)
    assert not device.lock_pages(address, 1 << 20)
    torch.ones(1, device="cuda").add_(1)  # and the refusal does not come up here
    device.unlock_pages(address)
    assert not device.is_pinned(tensor)
