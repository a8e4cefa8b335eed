"""The exercises of notebook 10: a dataset of images on disk; how many workers a step needs.

Before it: `labkit.lab.image_folder`, which draws the images; `labkit.lab.loading_cost`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from labkit.lab.exercises.exercise import Exercise
from labkit.lab.exercises.trial import Trial
from labkit.lab.image_folder import SIZES, TABLE, make
from labkit.lab.loading_cost import LoadingCost

__all__ = ["EXERCISES"]

_STUCK = "Read the table once, in `__init__`; open an image when its index is asked for."
_ROWS = 7


def _images(answer: Callable[..., Any], trial: Trial) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = make(name, _ROWS)
        labels = _shuffled_table(folder)
        _is_as_long_as_its_table(answer, trial, folder)
        _gives_image_and_label(answer, trial, folder, labels)
        _calls_the_transforms(answer, trial, folder, labels)
        _gives_the_transform_what_is_not_decoded(answer, trial, folder)
        _keeps_no_file_open(answer, trial, folder)
        _opens_an_image_when_it_is_asked_for(answer, trial, folder)


def _shuffled_table(folder: Path) -> list[tuple[str, int]]:
    """Let the table have another order than the files, and a file lie there that is not in it."""
    head, *rows = (folder / TABLE).read_text().splitlines()
    rows.reverse()
    (folder / TABLE).write_text("\n".join([head, *rows]) + "\n")
    (folder / "notes.txt").write_text("not an image\n")
    return [(row.split(",")[0], int(row.split(",")[1])) for row in rows]


def _is_as_long_as_its_table(answer: Callable[..., Any], trial: Trial, folder: Path) -> None:
    trial.case(f"a folder whose table has {_ROWS} rows, and a heading", f"len() is {_ROWS}", _STUCK)
    length = len(answer(folder))
    if length == _ROWS + 1:
        trial.fail(length, "The heading `file,label` is no image. `csv.DictReader` knows that.")
    if length != _ROWS:
        trial.fail(length, "Count the rows of `labels.csv`.")


def _gives_image_and_label(
    answer: Callable[..., Any], trial: Trial, folder: Path, labels: list[tuple[str, int]]
) -> None:
    dataset = answer(folder)
    for index, (file, label) in enumerate(labels):
        size = SIZES[int(Path(file).stem) % len(SIZES)]
        trial.case(
            f"index {index}: the table says {file}, {label}; no transforms",
            f"an image of {size[0]} × {size[1]} pixels, and {label}",
            _STUCK,
        )
        got = dataset[index]
        if not isinstance(got, tuple) or len(got) != 2:
            trial.fail(got, "A sample is a pair: `return image, label`.")
        image, said = got
        if getattr(image, "size", None) != size:
            trial.fail(
                getattr(image, "size", image),
                "Which file belongs to an index is said by the table, whatever else is in the "
                "folder, and in whatever order.",
            )
        if not isinstance(said, int) or said != label:
            trial.fail(said, "What is read from a table is text. A label is a number: `int(…)`.")
        try:
            image.getpixel((0, 0))
        except Exception as error:
            trial.fail(
                f"an image of which no pixel can be read ({type(error).__name__}: {error})",
                "Pillow decodes when it must. Without a transform, let it do so before the file "
                "is closed: `image.load()`.",
            )


def _calls_the_transforms(
    answer: Callable[..., Any], trial: Trial, folder: Path, labels: list[tuple[str, int]]
) -> None:
    label = labels[0][1]
    what = "what it returns stands in the sample"
    advice = (
        "`transform` is called with the image, `target_transform` with the label. Return what they "
        "return."
    )
    trial.case("index 0, with a transform", what, _STUCK)
    sample, target = answer(folder, transform=lambda image: "a sample")[0]
    if sample != "a sample":
        trial.fail(sample, advice)
    if target != label:
        trial.fail(target, "A transform changes the image and not the label.")
    trial.case("index 0, with a target_transform", what, _STUCK)
    _, target = answer(folder, target_transform=lambda label: 10 + label)[0]
    if target != 10 + label:
        trial.fail(target, advice)


def _gives_the_transform_what_is_not_decoded(
    answer: Callable[..., Any], trial: Trial, folder: Path
) -> None:
    trial.case(
        "a transform that calls `image.draft(…)`, to decode fewer pixels",
        "it can, for the image is opened and not decoded yet",
        _STUCK,
    )
    sizes = []

    def drafts(image: Any) -> Any:
        before = image.size
        image.draft("RGB", (40, 40))
        sizes.append((before, image.size))
        return image.copy()

    answer(folder, transform=drafts)[0]
    before, after = sizes[0]
    if before == after:
        trial.fail(
            "an image of full size, decoded already",
            "`convert`, `load` and the like decode all pixels. Give the transform what "
            "`Image.open` gives, and let it choose.",
        )


def _keeps_no_file_open(answer: Callable[..., Any], trial: Trial, folder: Path) -> None:
    trial.case(
        "all samples are asked for and kept, with a transform that does not decode",
        "no file stays open",
        _STUCK,
    )
    dataset = answer(folder, transform=lambda image: image)
    before = _open_files(folder)
    kept = [dataset[index] for index in range(_ROWS)]
    left = _open_files(folder) - before
    del kept
    if left > 0:
        trial.fail(
            f"{left} open files",
            "Each costs a descriptor, and those come to an end. `with Image.open(…) as image:` "
            "closes it.",
        )


def _open_files(folder: Path) -> int:
    """How many descriptors of this process lead into the folder."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{fd}").startswith(str(folder.resolve()))
    return found


def _opens_an_image_when_it_is_asked_for(
    answer: Callable[..., Any], trial: Trial, folder: Path
) -> None:
    trial.case(
        "a table whose images are gone",
        "the dataset can be made, and asking it for an image raises FileNotFoundError",
        "Nothing but the table is read in `__init__`: a million images would not fit.",
    )
    for image in folder.glob("*.jpg"):
        image.unlink()
    dataset = answer(folder)
    with suppress(FileNotFoundError):
        dataset[0]
        trial.fail(
            "an image that was read before it was asked for",
            "Nothing but the table is read in `__init__`: a million images would not fit.",
        )


_CASES = (  # work, waits, step, cores
    (10, 0, 10, 1),
    (25, 0, 10, 4),
    (8, 32, 10, 1),
    (3, 2, 10, 2),
    (25, 0, 10, 2),
    (20, 100, 10, 2),
    (21, 100, 10, 2),
)


def _fewest_workers(answer: Callable[[float, float, float, int], Any], trial: Trial) -> None:
    for core_ms, wait_ms, step_ms, cores in _CASES:
        expected = LoadingCost(core_ms, wait_ms).fewest_workers(step_ms, cores)
        trial.case(
            f"a batch takes {core_ms} ms of a core and {wait_ms} ms of waits; a step takes "
            f"{step_ms} ms; {cores} core{'' if cores == 1 else 's'}",
            repr(expected),
            "How many batches are asked for while a worker makes one?",
        )
        got = answer(core_ms, wait_ms, step_ms, cores)
        if got == expected:
            if isinstance(got, bool) or not isinstance(got, int | None):
                trial.fail(got, "A number of workers is whole: `math.ceil` gives an `int`.")
            continue
        trial.fail(got, _thought(core_ms, wait_ms, step_ms, cores, expected, got))


def _thought(
    core_ms: float, wait_ms: float, step_ms: float, cores: int, expected: int | None, got: Any
) -> str:
    if expected is None:
        return (
            "All cores together work `cores × step_ms` during a step. If a batch takes more work "
            "than that, more workers only share it."
        )
    if got is None:
        return "A worker that waits needs no core: there may be more workers than cores."
    if wait_ms and got == -(-core_ms // step_ms):
        return "A worker is not free for the next batch before its waits are over, too."
    if got < expected:
        return "A part of a worker is not enough: round up, and one is the least."
    return "Where it fits exactly, no further worker is needed."


EXERCISES = (
    Exercise(
        id="10.images",
        answer="Images",
        hints=(
            "The table is small: keep its rows. An image is large: keep its name. What `with` does "
            "for files it does for Pillow's images as well.",
            '`with Image.open(self.folder / row["file"]) as image:`, and inside either '
            '`sample = self.transform(image)` or `image.load()`. The label is `int(row["label"])`.',
        ),
        run=_images,
        seconds=30.0,
    ),
    Exercise(
        id="10.fewest_workers",
        answer="fewest_workers",
        hints=(
            "Two questions: do the cores have enough time for the work of a batch, step by step? "
            "And how many batches must be in the making at once?",
            "If `core_ms > cores * step_ms`, return None. Else a worker gives a batch every "
            "`core_ms + wait_ms`, and one is wanted every `step_ms`: divide, and round up.",
        ),
        run=_fewest_workers,
    ),
)
