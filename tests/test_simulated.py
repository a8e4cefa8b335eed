"""The simulated device: order, time, memory, and the races of whoever forgets to wait.

Where a test needs work to be under way, a step's function waits for the test (`Gate`), so that no
outcome hangs on how fast this machine is. Durations are the device's own, from its log.
"""

import ctypes
import gc
import itertools
import math
import multiprocessing
import pickle
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import suppress

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from labkit.device import Device
from labkit.simulated import ENGINES, SimulatedDevice, SimulatedEvent
from labkit.simulated import device as simulated_device
from labkit.simulated.items import Mark

TO_DEVICE, TO_HOST, COMPUTE = ENGINES


@pytest.fixture
def device():
    with SimulatedDevice(launch_us=0) as device:
        yield device


@pytest.fixture
def log(device):
    log = []
    device.on_operation.append(log.append)
    return log


class Gate:
    """Holds the compute engine until it is opened, and each stream that is told to `wait`."""

    def __init__(self, device: SimulatedDevice) -> None:
        self._open = threading.Event()
        side = device.new_stream()
        with device.stream(side):
            device.run(self._wait, seconds=0, name="gate")
        self._passed = side.record_event()

    def _wait(self) -> float:
        assert self._open.wait(60)
        return 0.0

    def hold(self, stream) -> None:
        stream.wait_event(self._passed)

    def open(self) -> None:
        self._open.set()


def in_thread(function, *args) -> threading.Thread:
    thread = threading.Thread(target=function, args=args)
    thread.start()
    return thread


# It does what a device does


def test_it_is_a_device(device):
    assert isinstance(device, Device)
    assert device.is_simulated
    assert "simulated" in device.name
    assert "simulated" in repr(device).lower()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("pinned", [True, False])
def test_values_go_over_and_come_back(device, dtype, shape, pinned):
    batch = torch.randint(0, 2, shape).to(dtype)
    host = device.pin(batch) if pinned else batch
    assert device.is_pinned(host) == pinned or not batch.numel()
    there = device.to_device(host)
    assert (there.shape, there.dtype, there.nbytes) == (batch.shape, batch.dtype, batch.nbytes)
    back = there.cpu()
    assert back.dtype == batch.dtype
    assert torch.equal(back, batch)


@pytest.mark.parametrize(
    "batch",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12)[::3],
        torch.ones(1).expand(4),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1 + 2j]).conj().imag,
        torch.ones(2, requires_grad=True),
    ],
    ids=["transposed", "strided", "expanded", "conjugate", "negative", "requires_grad"],
)
def test_what_is_not_laid_out_plainly_goes_over_too(device, batch):
    assert torch.equal(device.to_device(batch).cpu(), batch.detach())
    assert torch.equal(device.to_device(device.pin(batch)).cpu(), batch.detach())


def test_a_step_computes_from_its_inputs(device):
    a, b = device.to_device(torch.arange(4.0)), device.to_device(torch.ones(4))
    assert device.run(lambda x, y: (x + y).sum(), a, b, seconds=0).item() == 10
    doubled = device.run(lambda x: 2 * x, a, seconds=0, shape=(4,))
    assert doubled.cpu().tolist() == [0, 2, 4, 6]
    assert device.run(lambda x: int(x.numel()), a, seconds=0, dtype=torch.int64).item() == 4


def test_work_of_one_stream_is_done_in_order(device, log):
    total = device.to_device(torch.zeros(()))
    for i in range(1, 6):
        total = device.run(lambda x, i=i: 10 * x + i, total, seconds=0.001 * (6 - i))
    assert total.item() == 12345
    steps = [operation for operation in log if operation.kind == "step"]
    assert all(a.end <= b.start for a, b in itertools.pairwise(steps))


def test_of_several_streams_that_are_ready_the_one_issued_first_is_served(device, log):
    gate, streams = Gate(device), [device.new_stream() for _ in range(4)]
    for stream in streams:
        gate.hold(stream)
    for i in (2, 0, 3, 1):
        with device.stream(streams[i]):
            device.run(lambda: 0, seconds=0, name=str(i))
    gate.open()
    device.synchronize()
    assert [operation.name for operation in log] == ["gate", "2", "0", "3", "1"]


def test_each_thread_has_a_current_stream(device):
    mine = device.new_stream()
    seen = []
    with device.stream(mine):
        in_thread(lambda: seen.append(device.current_stream())).join()
        assert device.current_stream() is mine
        with device.stream(device.new_stream()):
            assert device.current_stream() is not mine
        assert device.current_stream() is mine
    assert seen == [device.current_stream()]


def test_an_event_tells_when_its_stream_has_passed_it(device):
    gate, stream = Gate(device), device.new_stream()
    before = stream.record_event()
    before.synchronize()
    gate.hold(stream)
    after = stream.record_event()
    assert before.query()
    assert not after.query()
    assert not stream.query()
    stream.record_event(before)  # recorded again, it stands for the new point
    assert not before.query()
    gate.open()
    after.synchronize()
    stream.synchronize()
    assert after.query()
    assert before.query()
    assert stream.query()
    with pytest.raises(RuntimeError, match="synchronize"):
        after.elapsed_time(SimulatedEvent(device._timeline))


def test_events_measure_the_devices_time(device):
    stream = device.current_stream()
    begin = stream.record_event()
    device.run(lambda: 0, seconds=0.015)
    end = stream.record_event()
    end.synchronize()
    assert begin.elapsed_time(end) >= 15


def test_operations_are_reported_with_their_names(device, log):
    batch = device.pin(torch.ones(1000))
    with device.record_function("batch 7"):
        there = device.to_device(batch)
        device.run(torch.sum, there, seconds=0.002, name="train")
    device.run(torch.sum, there, seconds=0, name="train").cpu()
    seen = [(o.engine, o.kind, o.name, o.nbytes) for o in log]
    assert seen == [
        (TO_DEVICE, "copy", "batch 7", 4000),
        (COMPUTE, "step", "batch 7", 0),
        (COMPUTE, "step", "train", 0),
        (TO_HOST, "copy", "copy", 4),
    ]


# The time it takes


def test_copies_take_the_time_of_the_link_and_steps_theirs(log):
    log = []
    rates = {"h2d_gb_per_s": 0.001, "pageable_gb_per_s": 0.0005, "d2h_gb_per_s": 0.002}
    with SimulatedDevice(**rates, launch_us=0, slow_motion=2) as device:
        device.on_operation.append(log.append)
        batch = torch.ones(1000)  # 4000 bytes: 4 ms at 0.001 GB/s
        there = device.to_device(device.pin(batch))
        device.to_device(batch)
        there.to_host(non_blocking=True)
        there.to_host()
        device.run(lambda: 0, seconds=0.003)
        device.synchronize()
    expected = [0.008, 0.016, 0.004, 0.016, 0.006]
    for operation, seconds in zip(log, expected, strict=True):
        took = operation.end - operation.start
        # Longer only where this machine was kept from its work for that long.
        assert took >= seconds - 1e-9
        assert took == pytest.approx(seconds) or took > seconds


def test_a_call_takes_its_launch_time():
    with SimulatedDevice(launch_us=500, slow_motion=10) as device:
        batch = device.pin(torch.ones(1))
        began = time.monotonic()
        device.to_device(batch)
        assert time.monotonic() - began >= 0.005


def pipeline(copies, steps, slots=2):
    """When the last step ends, if copy k waits for step k - slots and step k for copy k."""
    copied, done = [0.0], [0.0] * slots
    for k, (copy, step) in enumerate(zip(copies, steps, strict=True)):
        copied.append(max(copied[-1], done[k]) + copy)
        done.append(max(done[-1], copied[-1]) + step)
    return done[-1]


@pytest.mark.parametrize(("copy_ms", "step_ms"), [(20, 30), (30, 20), (25, 25)])
def test_copies_run_beside_steps(copy_ms, step_ms):
    n, log, nbytes = 8, [], 4000
    with SimulatedDevice(h2d_gb_per_s=nbytes / (copy_ms * 1e6), launch_us=0) as device:
        device.on_operation.append(log.append)
        batch, slots = device.pin(torch.ones(1000)), [device.empty((1000,)) for _ in range(2)]
        copier, computer = device.new_stream(), device.new_stream()
        gate, done = Gate(device), []
        gate.hold(copier)
        for k in range(n):
            with device.stream(copier):
                if k >= 2:
                    copier.wait_event(done[k - 2])
                slots[k % 2].copy_(batch, non_blocking=True)
            with device.stream(computer):
                computer.wait_stream(copier)
                device.run(torch.sum, slots[k % 2], seconds=step_ms / 1000)
                done.append(computer.record_event())
        gate.open()
        device.synchronize()
    copies = [o for o in log if o.kind == "copy"]
    steps = [o for o in log if o.name == "step"]
    took = steps[-1].end - copies[0].start
    durations = [[o.end - o.start for o in side] for side in (copies, steps)]
    assert took == pytest.approx(pipeline(*durations))
    ideal = (n * max(copy_ms, step_ms) + min(copy_ms, step_ms)) / 1000
    nominal = sum(durations[0]) + sum(durations[1])
    slipped = nominal / (n * (copy_ms + step_ms) / 1000)  # above 1 where this machine stood still
    assert took <= 1.05 * ideal + (slipped - 1) * n * (copy_ms + step_ms) / 1000
    assert took < 0.8 * nominal


# The faults of a naive preloader


def test_fault_1_without_an_event_the_old_value_is_read(device):
    batches = [device.pin(torch.full((100,), float(i))) for i in (1, 2)]
    copier = device.new_stream()
    with device.stream(copier):
        there = device.to_device(batches[0])
        copier.synchronize()
        del there  # its memory serves the next batch
        gate = Gate(device)
        gate.hold(copier)
        there = device.to_device(batches[1])
        copied = copier.record_event()
    assert there.cpu().unique().tolist() == [1]  # read too early: the last batch
    device.current_stream().wait_event(copied)
    in_time = there.to_host(non_blocking=True)
    gate.open()
    device.synchronize()
    assert in_time.unique().tolist() == [2]


@pytest.mark.parametrize("non_blocking", [True, False])
def test_fault_2_a_copy_from_pageable_memory_blocks_its_caller(device, non_blocking):
    copier, copied = device.new_stream(), threading.Event()

    def copy(batch):
        with device.stream(copier):
            device.to_device(batch, non_blocking=non_blocking)
        copied.set()

    gate = Gate(device)
    gate.hold(copier)
    thread = in_thread(copy, torch.ones(10))
    assert not copied.wait(0.1)
    gate.open()
    thread.join()
    assert copier.query()


def test_from_pinned_memory_the_call_returns_at_once_unless_it_shall_block(device):
    copier, batch = device.new_stream(), device.pin(torch.ones(10))
    gate = Gate(device)
    gate.hold(copier)
    with device.stream(copier):
        device.to_device(batch, non_blocking=True)
    assert not copier.query()
    gate.open()
    with device.stream(copier):
        device.to_device(batch, non_blocking=False)
    assert copier.query()


@pytest.mark.parametrize("recorded", [False, True])
def test_fault_3_without_record_stream_a_running_step_sees_the_next_batch(device, recorded):
    copier, computer = device.new_stream(), device.new_stream()
    batches = [device.pin(torch.full((100,), float(i))) for i in (1, 2)]
    may_read, reads = threading.Event(), threading.Event()

    def step(x):
        reads.set()
        assert may_read.wait(60)
        return x.mean()

    with device.stream(copier):
        there = device.to_device(batches[0])
    computer.wait_stream(copier)
    with device.stream(computer):
        mean = device.run(step, there, seconds=0.001)
    if recorded:
        there.record_stream(computer)
    del there
    assert reads.wait(60)
    with device.stream(copier):
        device.to_device(batches[1])
    copier.synchronize()
    may_read.set()
    with device.stream(computer):
        assert mean.item() == (1 if recorded else 2)


# What else can be read too early, or written (P4)


def test_a_host_source_that_is_changed_under_way_arrives_changed(device):
    copier, batch = device.new_stream(), device.pin(torch.ones(10))
    gate = Gate(device)
    gate.hold(copier)
    with device.stream(copier):
        there = device.to_device(batch)
    batch.fill_(2)
    gate.open()
    copier.synchronize()
    assert there.cpu().tolist() == [2] * 10


def test_a_copy_to_the_host_that_is_read_at_once_is_stale(device):
    there = device.to_device(torch.ones(10))
    gate = Gate(device)
    gate.hold(device.current_stream())
    host = there.to_host(non_blocking=True)
    assert device.is_pinned(host)
    assert host.tolist() == [0] * 10
    gate.open()
    device.current_stream().synchronize()
    assert host.tolist() == [1] * 10


# Page-locked memory


def test_pinned_memory_is_forgotten_with_its_tensor(device):
    pinned = device.pin(torch.ones(3, 4))
    assert device.pin(pinned) is pinned
    assert device.is_pinned(pinned[1:, ::2])
    view = pinned[2]
    del pinned
    assert device.is_pinned(view)
    del view
    gc.collect()
    assert not device._host._own
    assert not device.is_pinned(torch.ones(3))


def test_memory_of_others_is_locked_where_it_lies(device):
    slots = torch.zeros(4, 10)
    row = slots[0].nbytes
    assert not device.is_pinned(slots[1])
    assert device.lock_pages(slots.data_ptr(), 2 * row)
    assert device.is_pinned(slots[1])
    assert not device.is_pinned(slots)
    assert not device.lock_pages(slots.data_ptr() + row, 2 * row)
    assert not device.lock_pages(slots[3].data_ptr(), 0)
    device.unlock_pages(slots.data_ptr())
    assert not device.is_pinned(slots[1])


def test_a_copy_from_locked_pages_does_not_keep_its_source(device):
    buffer = (ctypes.c_float * 10)(*[1] * 10)
    address = ctypes.addressof(buffer)
    device.lock_pages(address, ctypes.sizeof(buffer))
    copier = device.new_stream()
    gate = Gate(device)
    gate.hold(copier)
    with device.stream(copier):
        there = device.to_device(torch.frombuffer(buffer, dtype=torch.float32))
        again = device.to_device(torch.frombuffer(buffer, dtype=torch.float32))
    assert sys.getrefcount(buffer) == 2
    buffer[0] = 5.0  # whoever owns the memory gives it to somebody else
    gate.open()
    copier.synchronize()
    device.unlock_pages(address)
    assert there.cpu()[0] == again.cpu()[0] == 5


def test_unlocking_pages_under_a_copy_fails_the_copy(device):
    batch = torch.ones(10)
    device.lock_pages(batch.data_ptr(), batch.nbytes)
    gate = Gate(device)
    gate.hold(device.current_stream())
    there = device.to_device(batch)
    device.unlock_pages(batch.data_ptr())
    gate.open()
    with pytest.raises(RuntimeError, match=r"unlocked .* while the copy was under way"):
        there.cpu()


# Device memory


def test_memory_is_counted_and_kept_for_the_same_stream():
    with SimulatedDevice(capacity_bytes=4096) as device:
        a = device.empty((100,))
        assert device.memory_allocated() == device.memory_reserved() == 512
        del a
        assert (device.memory_allocated(), device.memory_reserved()) == (0, 512)
        b = device.empty((128,), torch.int32)
        assert device.memory_reserved() == 512
        with device.stream(device.new_stream()):
            c = device.empty((1000,), torch.uint8)  # another stream: other memory
        assert (device.memory_allocated(), device.memory_reserved()) == (1536, 1536)
        del b, c
        device.empty_cache()
        assert (device.memory_reserved(), device.max_memory_reserved()) == (0, 1536)


def test_over_many_batches_reserved_memory_stays_flat(device):
    copier = device.new_stream()
    batch = device.pin(torch.ones(1000))
    for _ in range(40):
        with device.stream(copier):
            there = device.to_device(batch)
        device.current_stream().wait_stream(copier)
        device.run(torch.sum, there, seconds=0)
        there.record_stream(device.current_stream())
        del there
        device.synchronize()
    assert device.max_memory_reserved() <= 3 * 4096


def test_out_of_memory_is_told_in_words():
    with SimulatedDevice(capacity_bytes=4096) as device:
        kept = device.empty((512,))
        device.empty((512,))  # dropped at once; what is kept in reserve is given up first
        with device.stream(device.new_stream()):
            device.empty((300,))
        with pytest.raises(torch.OutOfMemoryError, match=r"4,096 bytes 2,048 are in use") as caught:
            device.empty((513,))
        assert "2,560 bytes are wanted" in str(caught.value)
        assert kept.nbytes == 2048


def test_memory_that_another_stream_still_uses_is_waited_for():
    with SimulatedDevice(capacity_bytes=4096, launch_us=0) as device:
        other = device.new_stream()
        gate = Gate(device)
        there = device.empty((1024,))
        gate.hold(other)
        there.record_stream(other)
        del there
        got = []
        thread = in_thread(lambda: got.append(device.empty((1024,))))
        thread.join(0.1)
        assert not got
        gate.open()
        thread.join()
        assert got[0].nbytes == 4096


# What goes wrong


def test_an_error_is_told_to_the_next_who_waits_and_only_to_him(device):
    device.run(lambda: 1 / 0, seconds=0, name="broken")
    event = device.current_stream().record_event()
    with pytest.raises(RuntimeError, match="step 'broken' failed: ZeroDivisionError") as caught:
        event.synchronize()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    event.synchronize()
    device.synchronize()
    assert device.run(lambda: 5, seconds=0).item() == 5  # the engine goes on


@pytest.mark.parametrize("how", ["stream", "device", "other stream", "copy"])
def test_an_error_reaches_every_kind_of_waiting(device, how):
    other = device.new_stream()
    with device.stream(other):
        result = device.run(lambda: sys.exit(3), seconds=0)
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        if how == "stream":
            other.synchronize()
        elif how == "device":
            device.synchronize()
        elif how == "other stream":
            device.current_stream().wait_stream(other)
            device.current_stream().synchronize()
        else:
            with device.stream(other):
                result.cpu()


def test_an_error_that_nobody_waited_for_is_not_told_of_an_earlier_point(device):
    event = device.current_stream().record_event()
    device.run(lambda: 1 / 0, seconds=0)
    event.synchronize()
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        device.synchronize()


def test_a_listeners_error_is_told_too(device):
    device.on_operation.append(lambda operation: 1 / 0)
    device.run(lambda: 0, seconds=0)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        device.synchronize()


def test_a_result_of_another_shape_than_announced_is_an_error(device):
    device.run(lambda: torch.ones(3), seconds=0)
    with pytest.raises(RuntimeError, match=r"returned shape \(3,\), and run\(shape=…\) was told"):
        device.synchronize()


def test_a_step_that_uses_its_device_is_told_so_instead_of_waiting_for_itself(device):
    device.run(lambda: device.synchronize() or 0, seconds=0)
    with pytest.raises(RuntimeError, match="would wait for itself"):
        device.synchronize()


@pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning")
def test_bad_arguments_are_refused_in_words(device):
    for arguments in ({"h2d_gb_per_s": 0}, {"slow_motion": 0}, {"capacity_bytes": -1}):
        with pytest.raises(ValueError, match="above 0"):
            SimulatedDevice(**arguments)
    for seconds in (-1, math.nan):
        with pytest.raises(ValueError, match="less than no time"):
            device.run(torch.sum, seconds=seconds)
    with pytest.raises(TypeError, match="to_device"):
        device.run(torch.sum, torch.ones(1), seconds=0)
    with SimulatedDevice() as other, pytest.raises(TypeError, match="its own device"):
        device.run(torch.sum, other.empty(()), seconds=0)
    with pytest.raises(ValueError, match="does not fit"):
        device.empty((2,)).copy_(torch.ones(3))
    quantized = torch._empty_affine_quantized([2], dtype=torch.qint8)
    for odd in (torch.eye(2).to_sparse(), torch.empty(2, device="meta"), quantized):
        for take in (device.to_device, device.pin):
            with pytest.raises(TypeError, match="dense host tensors"):
                take(odd)
    with pytest.raises(TypeError, match="stays in its process"):
        pickle.dumps(device.empty((1,)))


# The end


def engines():
    return [thread for thread in threading.enumerate() if "engine" in thread.name]


def test_closing_ends_the_threads_and_wakes_who_waits():
    device = SimulatedDevice()
    assert len(engines()) == 3
    device.run(lambda: 0, seconds=3600)
    errors = []

    def wait():
        try:
            device.synchronize()
        except RuntimeError as error:
            errors.append(str(error))

    waiting = [in_thread(wait) for _ in range(2)]
    device.close()
    for thread in waiting:
        thread.join()
    assert len(errors) == 2
    assert "wait for the device" in errors[0]
    assert "was closed" in errors[0]
    assert not engines()
    device.close()
    with pytest.raises(RuntimeError, match="was closed"):
        device.run(lambda: 0, seconds=0)


def test_a_step_whose_function_hangs_holds_no_close_up(monkeypatch):
    monkeypatch.setattr(simulated_device, "_END_SECONDS", 0.1)
    begun, goes_on = threading.Event(), threading.Event()

    def hang():
        begun.set()
        goes_on.wait(60)
        return 0

    with SimulatedDevice() as device:
        device.run(hang, seconds=0)
        begun.wait(60)
    (stuck,) = engines()
    goes_on.set()
    stuck.join(60)
    assert not engines()


def test_a_step_may_take_for_ever():
    with SimulatedDevice(launch_us=0) as device:
        device.run(lambda: 0, seconds=math.inf)
        time.sleep(0.05)
        assert len(engines()) == 3  # nothing that overflowed


def test_memory_that_this_machine_does_not_have_is_not_counted():
    with SimulatedDevice(capacity_bytes=1 << 60) as device:
        with pytest.raises(RuntimeError, match="memory"):
            device.empty((1 << 57,))
        assert device.memory_reserved() == 0


def test_a_ctrl_c_while_work_is_issued_holds_nobody_up_later(device, monkeypatch):
    pass_by, interrupts = Mark.pass_by, iter([True])

    def interrupted(*arguments):
        if next(interrupts, False):
            raise KeyboardInterrupt
        return pass_by(*arguments)

    monkeypatch.setattr(Mark, "pass_by", interrupted)
    with pytest.raises(KeyboardInterrupt):
        device.current_stream().record_event()
    assert device.current_stream().query()


def test_a_device_that_nobody_refers_to_ends():
    stream = SimulatedDevice().new_stream()
    device = SimulatedDevice()
    device.on_operation.append(lambda operation: None)
    batch = device.to_device(torch.ones(10))
    device.run(torch.sum, batch, seconds=3600)
    threads = engines()
    del device
    assert any(thread.is_alive() for thread in threads)  # the tensor still needs it
    del batch
    gc.collect()
    for thread in threads:
        thread.join(60)
    assert not engines()
    with pytest.raises(RuntimeError, match="no longer referred to"):
        stream.record_event()


def test_a_device_that_is_closed_by_its_own_thread_ends():
    device = SimulatedDevice()
    device.on_operation.append(lambda operation: device.close())
    device.run(lambda: 0, seconds=0)
    with suppress(RuntimeError):
        device.synchronize()
    device.close()
    assert not engines()


def test_the_interpreter_ends_in_the_midst_of_work():
    program = """if True:
        import torch
        from labkit.simulated import SimulatedDevice
        device = SimulatedDevice(slow_motion=1e6, launch_us=0)
        there = device.to_device(device.pin(torch.ones(10**6)))
        device.run(torch.sum, there, seconds=3600)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def use_in_child(device, there, event, connection):
    words = []
    for use in (there.cpu, event.synchronize, device.synchronize, device.new_stream().record_event):
        try:
            use()
        except RuntimeError as error:
            words.append(str(error))
    device.close()
    connection.send(words)


def test_a_forked_child_is_told_that_the_device_is_not_there(device):
    there = device.to_device(torch.ones(2))
    event = device.current_stream().record_event()
    ours, childs = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    with device._timeline.lock:  # the worst moment to fork
        child = context.Process(target=use_in_child, args=(device, there, event, childs))
        child.start()
    with ours, childs:
        assert ours.poll(60)
        words = ours.recv()
    child.join()
    assert len(words) == 4
    assert all("which a fork does not copy" in word for word in words)
    assert there.cpu().tolist() == [1, 1]


# Any program


STREAMS, SLOTS = 2, 2
INSTRUCTIONS = st.one_of(
    st.tuples(st.just("copy"), st.integers(0, STREAMS - 1), st.integers(0, SLOTS - 1)),
    st.tuples(
        st.just("step"),
        st.integers(0, STREAMS - 1),
        st.integers(0, SLOTS - 1),
        st.integers(0, SLOTS - 1),
        st.integers(0, SLOTS - 1),
    ),
    st.tuples(st.just("read"), st.integers(0, STREAMS - 1), st.integers(0, SLOTS - 1)),
)


class Slot:
    """A tensor of a program, what it holds in the end, and the event after its last writer."""

    def __init__(self, tensor, value, stream) -> None:
        self.tensor, self.value = tensor, value
        self.written = stream.record_event()

    def use(self, stream) -> object:
        stream.wait_event(self.written)
        self.tensor.record_stream(stream)
        return self.tensor


@example([("copy", 0, 0), ("read", 1, 0), ("copy", 0, 0)], {1})  # needs record_stream
@given(st.lists(INSTRUCTIONS, min_size=5, max_size=30), st.sets(st.integers(0, STREAMS - 1)))
def test_a_program_with_its_events_computes_what_it_computes_in_order(program, held):
    """The held streams begin when all has been issued, so the others are far ahead of them."""
    log, reads = [], []
    with SimulatedDevice(launch_us=0) as device:
        device.on_operation.append(log.append)
        gate, streams = Gate(device), [device.new_stream() for _ in range(STREAMS)]
        for which in held:
            gate.hold(streams[which])
        number = [device.pin(torch.tensor(i)) for i in range(len(program) + SLOTS)]
        slots = [
            Slot(device.to_device(number[i]), i, device.current_stream()) for i in range(SLOTS)
        ]
        for k, (kind, which, *where) in enumerate(program, start=SLOTS):
            stream = streams[which]
            with device.stream(stream):
                if kind == "copy":
                    slots[where[0]] = None  # its memory may serve this very copy
                    slots[where[0]] = Slot(device.to_device(number[k]), k, stream)
                elif kind == "step":
                    a, b = slots[where[0]], slots[where[1]]
                    inputs = a.use(stream), b.use(stream)
                    result = device.run(
                        lambda x, y: (3 * x + y + 1) % 1009,
                        *inputs,
                        seconds=0.0002,
                        dtype=torch.int64,
                    )
                    slots[where[2]] = Slot(result, (3 * a.value + b.value + 1) % 1009, stream)
                    del a, b, inputs, result  # only the slots keep memory
                else:
                    slot = slots[where[0]]
                    reads.append((slot.use(stream).to_host(non_blocking=True), slot.value))
                    del slot
        time.sleep(0.002)
        gate.open()
        device.synchronize()
        assert [host.item() for host, _ in reads] == [value for _, value in reads]
        assert [slot.tensor.cpu().item() for slot in slots] == [slot.value for slot in slots]
    assert_in_order(log)


def assert_in_order(log) -> None:
    """No engine, and no stream, does two things at once."""
    for attribute in ("engine", "stream"):
        lanes = defaultdict(list)
        for operation in log:
            lanes[getattr(operation, attribute)].append(operation)
        for lane in lanes.values():
            assert all(a.end <= b.start for a, b in itertools.pairwise(lane))


@given(st.lists(st.tuples(st.sampled_from("cwr"), st.integers(0, 2)), max_size=30))
def test_events_order_streams_and_nothing_else_holds_them_up(program):
    """Against a model: each operation begins when its stream, its events and its engine allow."""
    log, expected = [], []
    with SimulatedDevice(launch_us=0) as device:
        device.on_operation.append(log.append)
        gate = Gate(device)
        streams = [device.new_stream() for _ in range(3)]
        for stream in streams:
            gate.hold(stream)
        waits: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}  # operations before the next
        recorded, event = set(), gate._passed
        for what, which in program:
            if what == "c":
                with device.stream(streams[which]):
                    device.run(lambda: 0, seconds=0.0003 * (which + 1), name=str(len(expected)))
                expected.append(set(waits[which]))
                waits[which].add(len(expected) - 1)
            elif what == "r":
                event, recorded = streams[which].record_event(), set(waits[which])
            else:
                streams[which].wait_event(event)
                waits[which] |= recorded
        gate.open()
        device.synchronize()
    begin = next(operation.end for operation in log if operation.name == "gate")
    done = {int(o.name): o for o in log if o.name != "gate"}
    free = begin
    for operation in log[1:]:
        before = [done[k].end for k in expected[int(operation.name)]]
        assert operation.start == pytest.approx(max([free, begin, *before]), abs=1e-9)
        free = operation.end
    assert len(done) == len(expected)
