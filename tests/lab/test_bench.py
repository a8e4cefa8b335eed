"""The bench measures what it says, computes what it shows from that, and leaves nothing behind.

No test asserts how fast anything is.
"""

import dataclasses
import json
import math
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

from labkit import recording
from labkit.__main__ import main
from labkit.lab import MissingPackage
from labkit.lab.bench import Options, bench, to_device, workloads
from labkit.lab.bench import results as bench_results
from labkit.lab.bench.results import Figure, Measured, Spread, Wanted, figures, ratios
from labkit.lab.bench.tables import table
from labkit.lab.bench.timing import first_batch_seconds, stack_seconds
from labkit.lab.bench.trace_cost import SpanCost
from labkit.lab.bench.workloads import GROUPS, FromMemory, Group, StartUp, Workload
from labkit.lab.resources import Resources, labkit_message_bytes, measure, torch_message_bytes
from labkit.sharing.segment import Segment
from tests.comparison import differences
from tests.scripts import ROOT, alive, environment, family_of, run_script, seconds_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")

TINY = Options(repeats=2, scale=0.01)
ALL = [workload for group in GROUPS.values() for workload in group.workloads]
TIMED = [workload for workload in ALL if isinstance(workload, Workload)]


def group_of(*loads: Workload, **options) -> Group:
    return Group("tiny", loads, **{"limit_s": 100, **options})


def tiny(name: str = "tensor", **options) -> Workload:
    defaults = {"num_workers": 1, "warmup": 3}
    return Workload(name, "for a test", workloads.tensors, **{**defaults, **options})


# What is measured


@linux
def test_a_run_keeps_every_repeat_of_both_sides_and_what_they_cost():
    run = bench([group_of(tiny())], TINY)
    (measured,) = run.workloads
    assert measured.seconds.keys() == measured.resources.keys() == {"labkit", "torch"}
    for side in ("labkit", "torch"):
        assert len(measured.seconds[side]) == TINY.repeats
        assert all(seconds > 0 for seconds in measured.seconds[side])
        assert all(count >= tiny().min_batches for count in measured.batches[side])
        assert None not in dataclasses.astuple(measured.resources[side])
        assert 0 < measured.resources[side].message_bytes < 4096  # the tensor is not in it
    assert measured.batch_bytes == 4096
    assert (run.interrupted, run.failures, run.notes) == (False, {}, {})


@linux
def test_the_json_holds_the_machine_all_repeats_and_the_figures_computed_from_them():
    run = bench([group_of(tiny())], TINY)
    stored = json.loads(json.dumps(run.to_json()))
    machine = stored["machine"]
    assert machine["cores"] == len(os.sched_getaffinity(0))
    assert {"date", "memory_bytes", "kernel", "python", "torch", "labkit"} <= machine.keys()
    assert stored["settings"]["repeats"] == TINY.repeats
    (measured,) = stored["workloads"]
    (figure,) = stored["figures"]
    pairs = zip(measured["seconds"]["torch"], measured["seconds"]["labkit"], strict=True)
    assert figure["per_repeat"] == [theirs / ours for theirs, ours in pairs]
    assert figure["median"] == statistics.median(figure["per_repeat"])
    assert figure["wanted"] == {"sign": "≥", "value": 8}


def test_the_sides_take_turns_and_change_the_order():
    turns = []

    def note(side):
        def collate_fn(samples):
            if turns[-1:] != [side]:
                turns.append(side)
            return default_collate(samples)

        return collate_fn

    load = tiny(num_workers=0, collate_fn=note("torch"), labkit_collate_fn=note("labkit"))
    bench([group_of(load)], Options(repeats=3, scale=0.01))
    assert turns[:4] == ["labkit", "torch", "labkit", "torch"]  # A B, B A, A B


def test_the_limit_is_measured_in_the_same_run():
    load = tiny("images, 1 worker", num_workers=0, batch_size=4, against_stack=True)
    run = bench([group_of(load)], TINY)
    assert len(run.workloads[0].seconds["stack"]) == TINY.repeats
    names = [figure.name for figure in figures(run.workloads)]
    assert names == ["PyTorch ÷ labkit", "labkit ÷ torch.stack"]
    assert "≤ 1.15" in table(run)


def test_the_limit_is_measured_with_one_thread_and_gives_the_others_back():
    threads = torch.get_num_threads()
    seconds, batches = stack_seconds([torch.rand(10)] * 4, seconds=0.0)
    assert seconds > 0
    assert batches >= 8
    assert torch.get_num_threads() == threads


def fail(samples):
    raise ValueError("not with me")


def test_a_side_that_fails_is_told_of_and_the_other_goes_on():
    run = bench([group_of(tiny(labkit_collate_fn=fail))], TINY)
    assert list(run.failures) == ["tensor, labkit"]
    assert len(run.workloads[0].seconds["torch"]) == TINY.repeats
    assert "not with me" in table(run)


def test_when_time_is_up_no_new_repeat_begins_and_it_says_so():
    run = bench([group_of(tiny(num_workers=0), limit_s=0)], TINY)
    assert len(run.workloads[0].seconds["labkit"]) == 1
    assert "1 of 2 repeats" in run.notes["tiny"]
    assert run.notes["tiny"] in table(run)


def test_a_workload_whose_package_is_missing_is_skipped_in_words(monkeypatch):
    def need(module, package=None):
        raise MissingPackage(f"{package} cannot be imported: pip install {package}")

    monkeypatch.setattr(workloads, "need", need)
    run = bench([GROUPS["jpeg"]], TINY)
    assert run.workloads == []
    assert "pip install Pillow" in table(run)


def test_peers_that_are_not_there_are_skipped_in_words(monkeypatch):
    for module in ("torchdata", "spdl"):
        monkeypatch.setitem(sys.modules, module, None)
    run = bench([], dataclasses.replace(TINY, peers=True))
    assert run.notes.keys() == {"torchdata", "spdl"}
    assert "pip install torchdata" in table(run)


@linux
def test_shared_memory_counts_also_where_it_is_open_and_not_mapped():
    segment = Segment.create(1 << 22)
    segment.exporter(0, 1 << 22)[:] = b"x" * (1 << 22)
    fd = os.dup(segment.fd)
    segment.close()
    del segment
    try:
        found = measure(lambda: [torch.rand(1)] * 100, warmup=1, min_batches=2, seconds=0)
    finally:
        os.close(fd)
    assert found.shared_bytes >= 1 << 22
    assert found.memory_bytes > found.shared_bytes
    assert found.fds == 0


def test_a_message_carries_the_bytes_of_arrays_in_pytorch_and_not_in_labkit():
    samples = workloads.arrays().samples[:8]
    batch_bytes = sum(sample.nbytes for sample in samples)
    assert torch_message_bytes(samples, workloads.stack_arrays) > batch_bytes
    assert labkit_message_bytes(samples, workloads.stack_arrays) < 1000


@pytest.mark.parametrize("side", ["labkit", "torch.utils.data"])
def test_start_up_is_measured_in_a_process_of_its_own(side):
    line = f"from {side} import DataLoader"
    assert first_batch_seconds(line, StartUp("fork", "for a test", "fork")) > 0


def test_a_start_up_that_fails_says_why():
    with pytest.raises(RuntimeError, match="no_such_module"):
        first_batch_seconds("import no_such_module", StartUp("fork", "for a test", "fork"))


# The workloads


@pytest.mark.parametrize("load", TIMED, ids=lambda load: load.name)
def test_both_sides_give_the_same_batch(load):
    dataset = load.make_dataset()
    samples = [dataset[i] for i in range(load.batch_size)]
    collate_fn = load.collate_fn or default_collate
    theirs, ours = collate_fn(samples), (load.labkit_collate_fn or collate_fn)(samples)
    assert list(differences(ours, theirs)) == []


def test_samples_come_round_and_round():
    dataset = FromMemory("abc")
    assert "".join(dataset[i] for i in range(7)) == "abcabca"


def test_names_are_there_once_and_every_bar_stands_for_one_of_them():
    names = [workload.name for workload in ALL]
    assert len(set(names)) == len(names)
    growth = ("labkit", "PyTorch's ÷ labkit's")
    on_a_device = {f"NVIDIA H200, {step}" for step in to_device._STEPS_MS}
    barred = {workload for _, workload in bench_results._WANTED}
    assert barred <= {*names, *growth, *on_a_device}
    assert {"workers: 2", "workers: 64"} <= set(names)


# The figures

times = st.floats(1e-7, 10)
series = st.lists(times, min_size=1, max_size=9)


@given(series, series)
def test_a_ratio_is_taken_repeat_by_repeat_as_far_as_both_go(over, under):
    found = ratios([over], [under])
    assert len(found) == min(len(over), len(under))
    assert all(f == o / u for f, o, u in zip(found, over, under, strict=False))


@given(st.lists(st.tuples(times, times, times, times), min_size=1))
def test_a_ratio_of_ratios_is_one_of_products(rows):
    a, b, c, d = zip(*rows, strict=True)
    for found, over, under in zip(
        ratios([a, d], [b, c]), ratios([a], [b]), ratios([c], [d]), strict=True
    ):
        assert math.isclose(found, over / under, rel_tol=1e-9)


@given(series)
def test_a_spread_holds_its_median_and_does_not_care_for_the_order(values):
    spread = Spread.of(values)
    assert spread.low <= spread.median <= spread.high
    assert spread == Spread.of(values[::-1])


@given(series, st.sampled_from("≥≤>"), times)
def test_the_verdict_is_about_the_median_and_tells_where_repeats_disagree(values, sign, bar):
    wanted = Wanted(sign, bar)
    figure = Figure("a ÷ b", "some", tuple(values), wanted)
    assert figure.verdict.startswith("reached") == wanted.holds(statistics.median(values))
    assert ("both sides" in figure.verdict) == (len(set(map(wanted.holds, values))) == 2)


def test_growth_is_measured_for_both_and_compared():
    loads = [
        Measured("workers: 2", "", 2, seconds={"labkit": [1.0, 2.0], "torch": [1.0, 1.0]}),
        Measured("workers: 64", "", 64, seconds={"labkit": [1.5, 2.0], "torch": [3.0, 4.0]}),
    ]
    growth = {f.workload: f.per_repeat for f in figures(loads) if f.name == "64 ÷ 2 workers"}
    assert growth == {
        "labkit": (1.5, 1.0),
        "PyTorch": (3.0, 4.0),
        "PyTorch's ÷ labkit's": (2.0, 4.0),
    }


@pytest.mark.parametrize(("ours", "verdict"), [(400, "reached"), (401, "not reached")])
def test_shared_memory_may_be_pytorchs_and_a_batch_a_worker(ours, verdict):
    found = {"labkit": Resources(shared_bytes=ours), "torch": Resources(shared_bytes=200)}
    load = Measured("images, 2 workers", "", 2, batch_bytes=100, resources=found)
    assert [check.verdict for check in bench_results.checks_of([load])] == [verdict]


@pytest.mark.parametrize(("count", "verdict"), [(24, "reached"), (26, "not reached")])
def test_spans_that_nobody_wants_may_take_half_of_the_spread(count, verdict):
    cost = SpanCost(count, 1e-7)
    load = Measured("tensor", "", 2, seconds={"labkit": [1e-4, 1.05e-4]}, span_cost=cost)
    assert [check.verdict for check in bench_results.checks_of([load])] == [verdict]


def test_a_trace_is_measured_on_and_off_and_its_spans_are_counted():
    loads = tiny(with_span_cost=True), tiny("tensor, traced", labkit_is_traced=True)
    run = bench([group_of(*loads)], TINY)
    on_and_off = [figure for figure in figures(run.workloads) if figure.name == "a trace on ÷ off"]
    assert [figure.workload for figure in on_and_off] == ["tensor"]
    cost = run.workloads[0].span_cost
    assert 10 <= cost.spans_a_batch <= 25
    assert 0 < cost.seconds_a_span < 1e-3
    assert "tracing while it is off, tensor" in table(run)
    assert recording.recorder is None


def test_a_run_without_results_can_be_printed():
    assert "Nothing was measured" in table(bench([], TINY))


# The command


def test_help_names_the_commands_and_their_options(capsys):
    assert main(["--help"]) == 0
    assert "bench" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        main(["bench", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for option in ("--only", "--repeats", "--quick", "--peers", "--json", *GROUPS):
        assert option in text


def test_an_unknown_command_says_what_there_is(capsys):
    assert main(["bunch"]) == 2
    assert "unknown command 'bunch'" in (text := capsys.readouterr().err)
    assert "bench" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "images,dict5"], "unknown workload 'dict5': there are images, tensor, dict4"),
        (["--repeats", "0"], "'0' is not a whole number of 1 or more"),
        (["--json", "/nowhere/a.json"], "'/nowhere/a.json' is no file that can be written"),
    ],
)
def test_wrong_options_say_what_to_write(arguments, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(["bench", *arguments])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_the_loader_and_the_command_line_import_nothing_of_the_lab():
    done = run_script("""
        import sys
        import labkit, labkit.__main__
        print([m for m in ("labkit.lab", "psutil", "PIL") if m in sys.modules])
    """)
    assert done.stdout == "[]\n", done.stderr


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path):
    path = tmp_path / "bench.json"
    command = ["bench", "--quick", "--repeats", "1", "--only", "tensor", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "labkit", *command, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "PyTorch ÷ labkit" in done.stdout
    assert json.loads(path.read_text())["workloads"][0]["name"] == "tensor"


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is a signal")
@pytest.mark.parametrize("only", ["tensor", "startup"])
def test_ctrl_c_prints_what_there_is_and_leaves_no_process(only):
    process = subprocess.Popen(
        [sys.executable, "-m", "labkit", "bench", "--repeats", "1000", "--only", only],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment(),
        cwd=ROOT,
    )
    try:
        seconds_until(lambda: len(family_of(process.pid)) > 0, limit=60)
        family = family_of(process.pid)
        assert family
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert "Interrupted" in output
        assert "Traceback" not in errors
        assert seconds_until(lambda: not any(alive(member.pid) for member in family)) < 10
    finally:
        for member in family_of(process.pid):
            member.kill()
        process.kill()
        process.communicate()
