"""What an investigation has found: filled piece by piece, so that there is advice at any time.

Before it: `investigation`, which tells of each piece. After it: `advice`, which words and draws it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from labkit.lab.advising.setting import Setting
from labkit.lab.results import Result
from labkit.spans import Span
from labkit.tracing import Trace

__all__ = ["Findings", "Probe", "Traced", "Trial"]


@dataclass(frozen=True)
class Probe:
    """What a few samples and a batch of them are like, made in the main process.

    Attributes:
        batch_bytes: of a batch: tensors, arrays and texts; what else is in it as it is pickled.
        batch_samples: samples in a batch.
        sample_seconds: median time of a sample.
        core_share: which part of that a core worked on it; the rest it waited.
        queued_share: of a sample's time that in which others had the cores that it wanted.
        lock_seconds: for how long no other Python thread ran, at most, while a sample was made.
        batches: in an epoch, by its length; None if it does not tell.
        kinds: what a batch is made of, such as "tensor (32, 3, 224, 224) float32".
    """

    batch_bytes: int
    batch_samples: int
    sample_seconds: float
    core_share: float
    lock_seconds: float
    queued_share: float
    batches: int | None
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Traced:
    """The trace of the user's setting.

    Attributes:
        spans, max_depth: the trace's.
        copy_seconds: of each batch to the device; none without one.
        epoch_batches: batches an epoch, if it came to its end.
        start_seconds: until the first batch.
    """

    spans: list[Span]
    max_depth: int
    copy_seconds: tuple[float, ...] = ()
    epoch_batches: int | None = None
    start_seconds: float = 0.0

    def trace(self) -> Trace:
        """As a trace, to be drawn, summed up and saved."""
        trace = Trace()
        trace.spans, trace.max_depth = self.spans, self.max_depth
        return trace


@dataclass(frozen=True)
class Trial:
    """Settings that were measured side by side.

    Attributes:
        about: what was tried: "workers", "transport", "start"; "all": all that helped, together.
        result: every repeat of the baseline and of the most promising other one.
        baseline: the label of the setting with which the others are compared.
        settings: all that were tried, by label.
        chosen: the label that is better, or the baseline's.
        screened: a few repeats of all of them, from which the most promising one was picked; None
            if there was but one.
    """

    about: str
    result: Result
    baseline: str
    settings: dict[str, Setting]
    chosen: str
    screened: Result | None = None

    @property
    def compared(self) -> str:
        """The label of the one that was compared with the baseline."""
        return next(label for label in self.result.labels if label != self.baseline)


@dataclass
class Findings:
    """All that is known so far.

    Attributes:
        name: of the dataset's class.
        samples: in the dataset, if it tells.
        given: the user's setting; `is_bare` if a dataset came without a loader.
        has_own_collate: batches are made by a function of the user's.
        step_seconds: of a training step.
        lines: by setting, the line of code that makes it.
        trials: what was tried.
        advised: the setting that came out best.
        limits: what kept others from being tried, a sentence each.
        notes: what else must be known, a sentence each.
        is_unsharded: each worker's copy of an iterable dataset gives all samples.
        stopped: why it ended early; "" if it did not.
    """

    name: str = "dataset"
    samples: int | None = None
    given: Setting = field(default_factory=Setting)
    is_bare: bool = False
    has_own_collate: bool = False
    device: str | None = None
    step_seconds: float = 0.0
    machine: dict[str, Any] = field(default_factory=dict)
    lines: dict[Setting, str] = field(default_factory=dict)
    probe: Probe | None = None
    traced: Traced | None = None
    trials: dict[str, Trial] = field(default_factory=dict)
    advised: Setting | None = None
    limits: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_unsharded: bool = False
    stopped: str = ""

    @property
    def epoch_batches(self) -> int | None:
        """Batches an epoch: as counted in the trace, else by the loader's length; None: unknown."""
        if self.traced is not None and self.traced.epoch_batches is not None:
            return self.traced.epoch_batches
        return self.probe.batches if self.probe is not None else None
