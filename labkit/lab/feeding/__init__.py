"""Whether one machine can feed its GPUs: what a job wants of each resource, and what there is.

Samples a second times what each costs, against cores, disk, network and the link to each GPU. All
numbers are the caller's: `measured` finds those that this machine can tell. The sums take every
resource for perfect, so what they give is a limit, and no promise.

After it: `drawing`, and notebook 12.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from labkit.lab.explain.wording import number
from labkit.lab.table import Table

if TYPE_CHECKING:
    from labkit.lab.plots.pictures import Picture

__all__ = ["Cost", "Feeding", "Image", "Machine", "Share", "feed", "measured"]


@dataclass(frozen=True)
class Cost:
    """What one sample costs the machine with the GPUs; 0: nothing.

    Attributes:
        core_seconds: of a core, for decoding and augmenting.
        disk_bytes: read from its own disk.
        network_bytes: received.
        link_bytes: copied to the GPU.
    """

    core_seconds: float = 0.0
    disk_bytes: float = 0.0
    network_bytes: float = 0.0
    link_bytes: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise ValueError(f"a cost is 0 or more, but got {field.name} below 0")


@dataclass(frozen=True)
class Machine:
    """What there is of each resource in one machine, in the units of `Cost`, a second.

    Attributes:
        gpus: in it.
        cores: for loading.
        disk: bytes a second.
        network: bytes a second.
        link: bytes a second to each GPU.
    """

    gpus: int
    cores: float
    disk: float
    network: float
    link: float

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"there is more than 0 of everything, but got {field.name} = 0")


@dataclass(frozen=True)
class Share:
    """One resource.

    Attributes:
        resource: its name.
        wanted: for all GPUs together.
        there: in the machine.
        unit: of both.
        gpus: of how many the whole machine has.
    """

    resource: str
    wanted: float
    there: float
    unit: str
    gpus: int

    @property
    def feeds(self) -> float:
        """How many of the GPUs it feeds; more than there are, if some of it is left."""
        return self.gpus * self.there / self.wanted


@dataclass(frozen=True, repr=False)
class Feeding:
    """What a job wants of a machine, for a cell to end in.

    Attributes:
        samples_per_second: of each GPU.
        shares: of each resource that the samples need; the scarcest first.
    """

    samples_per_second: float
    shares: Sequence[Share]

    @property
    def limit(self) -> Share:
        """The resource that gives out first."""
        return self.shares[0]

    @property
    def sentence(self) -> str:
        """How many GPUs can be fed, what gives out first, and what would be next."""
        first, *others = self.shares
        if first.feeds >= first.gpus:
            said = f"all {first.gpus} GPUs can be fed"
        else:
            said = f"only {number(first.feeds)} of {first.gpus} GPUs can be fed"
        said += f"; scarcest: {first.resource}, for {number(first.feeds)}"
        return said + "".join(f", then {o.resource}, for {number(o.feeds)}" for o in others[:1])

    @property
    def table(self) -> Table:
        """Wanted and there, by resource."""
        rows = [
            (s.resource, f"{number(s.wanted)} {s.unit}", f"{number(s.there)} {s.unit}",
             f"{number(s.feeds)} of {s.gpus} GPUs")
            for s in self.shares
        ]  # fmt: skip
        return Table(("resource", "wanted", "there is", "feeds"), rows)

    @property
    def picture(self) -> Picture:
        """How many GPUs each resource feeds, drawn."""
        from labkit.lab.feeding.drawing import show

        return show({"": self})

    def __repr__(self) -> str:
        return f"{self.table}\n{_capital(self.sentence)}."

    def _repr_html_(self) -> str:
        return f"{self.table._repr_html_()}\n<p>{_capital(self.sentence)}.</p>"


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def feed(samples_per_second: float, cost: Cost, machine: Machine) -> Feeding:
    """Compare what the GPUs want with what the machine has.

    Args:
        samples_per_second: that each GPU takes when it never waits.
        cost: of one sample.
        machine: with the GPUs.

    Raises:
        ValueError: no samples a second are wanted, or a sample costs nothing at all.
    """
    if samples_per_second <= 0:
        raise ValueError(f"a GPU takes samples, but got samples_per_second={samples_per_second!r}")
    gpus, every = machine.gpus, samples_per_second * machine.gpus
    shares = [
        Share("cores", every * cost.core_seconds, machine.cores, "cores", gpus),
        _in_megabytes("disk", every * cost.disk_bytes, machine.disk, gpus),
        _in_megabytes("network", every * cost.network_bytes, machine.network, gpus),
        _in_megabytes("link to the GPUs", every * cost.link_bytes, machine.link * gpus, gpus),
    ]
    needed = [share for share in shares if share.wanted > 0]
    if not needed:
        raise ValueError("a sample that costs nothing needs no sums: write for instance "
                         "Cost(core_seconds=0.005, network_bytes=100_000)")  # fmt: skip
    return Feeding(samples_per_second, sorted(needed, key=lambda share: share.feeds))


def _in_megabytes(resource: str, wanted: float, there: float, gpus: int) -> Share:
    return Share(resource, wanted / 1e6, there / 1e6, "MB/s", gpus)


@dataclass(frozen=True)
class Image:
    """What an image costs on this machine.

    Attributes:
        side: pixels.
        file_bytes: of the JPEG file.
        decoded_bytes: of its pixels as uint8.
        core_seconds: to decode it; the median of some times.
    """

    side: int
    file_bytes: int
    decoded_bytes: int
    core_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.side} × {self.side} pixels: a file of {self.file_bytes:,} bytes, decoded "
            f"{self.decoded_bytes:,} bytes, in {number(self.core_seconds * 1e3)} ms of a core"
        )


def measured(side: int, repeats: int = 9) -> Image:
    """Decode an image of the lab's, of `side` × `side` pixels, and count what that takes."""
    from labkit.lab.decoding import decoded, jpeg_bytes

    file = jpeg_bytes(side)
    pixels = decoded(file)  # once to warm up
    times = []
    for _ in range(repeats):
        began = time.thread_time()
        decoded(file)
        times.append(time.thread_time() - began)
    return Image(side, len(file), pixels.numel(), statistics.median(times))
