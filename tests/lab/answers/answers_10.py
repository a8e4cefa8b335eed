import csv
import math
import os
from pathlib import Path

from PIL import Image
from torch.utils.data import Dataset


class WithRows(Dataset):
    def __init__(self, folder, transform=None, target_transform=None):
        self.folder, self.transform, self.target_transform = folder, transform, target_transform
        with open(Path(folder) / "labels.csv", newline="") as table:
            self.rows = list(csv.DictReader(table))

    def __len__(self):
        return len(self.rows)

    def name(self, index):
        return Path(self.folder) / self.rows[index]["file"]

    def label(self, index):
        label = int(self.rows[index]["label"])
        return label if self.target_transform is None else self.target_transform(label)

    def __getitem__(self, index):
        with Image.open(self.name(index)) as image:
            if self.transform is None:
                image.load()
                sample = image
            else:
                sample = self.transform(image)
        return sample, self.label(index)


class WithCopies:
    def __init__(self, folder, transform=Image.Image.copy, target_transform=int):
        lines = (Path(folder) / "labels.csv").read_text().splitlines()[1:]
        self.pairs = [line.split(",") for line in lines]
        self.folder, self.transform, self.target_transform = (
            Path(folder),
            transform,
            target_transform,
        )

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        file, label = self.pairs[index]
        with Image.open(self.folder / file) as image:
            return self.transform(image), self.target_transform(int(label))


class CountsTheHeading(WithRows):
    def __len__(self):
        return len(self.rows) + 1


class ListsTheFolder(WithRows):
    def name(self, index):
        return (
            Path(self.folder) / sorted(f for f in os.listdir(self.folder) if f[-3:] == "jpg")[index]
        )


class LabelsAreText(WithRows):
    def label(self, index):
        return self.rows[index]["label"]


class ClosedTooEarly(WithRows):
    def __getitem__(self, index):
        with Image.open(self.name(index)) as image:
            sample = image if self.transform is None else self.transform(image)
        return sample, self.label(index)


class ForgetsTheTransforms(WithRows):
    def __getitem__(self, index):
        with Image.open(self.name(index)) as image:
            image.load()
        return image, self.label(index)


class DecodesFirst(WithRows):
    def __getitem__(self, index):
        with Image.open(self.name(index)) as image:
            sample = image.convert("RGB")
        return sample if self.transform is None else self.transform(sample), self.label(index)


class NeverCloses(WithRows):
    def __getitem__(self, index):
        image = Image.open(self.name(index))
        if self.transform is None:
            image.load()
        return image if self.transform is None else self.transform(image), self.label(index)


class ReadsAllAtOnce(WithRows):
    def __init__(self, folder, transform=None, target_transform=None):
        super().__init__(folder, transform, target_transform)
        self.contents = [self.name(i).read_bytes() for i in range(len(self.rows))]


def by_ceil(core_ms, wait_ms, step_ms, cores):
    if core_ms > cores * step_ms:
        return None
    return math.ceil((core_ms + wait_ms) / step_ms)


def by_counting(core_ms, wait_ms, step_ms, cores):
    if core_ms / cores > step_ms:
        return None
    workers = 1
    while workers * step_ms < core_ms + wait_ms:
        workers += 1
    return workers


def rounds_down(core_ms, wait_ms, step_ms, cores):
    return None if core_ms > cores * step_ms else int((core_ms + wait_ms) // step_ms)


def one_more(core_ms, wait_ms, step_ms, cores):
    return None if core_ms > cores * step_ms else int((core_ms + wait_ms) // step_ms) + 1


def without_waits(core_ms, wait_ms, step_ms, cores):
    return None if core_ms > cores * step_ms else math.ceil(core_ms / step_ms)


def one_a_core_at_most(core_ms, wait_ms, step_ms, cores):
    workers = math.ceil((core_ms + wait_ms) / step_ms)
    return workers if workers <= cores else None


def as_if_cores_were_free(core_ms, wait_ms, step_ms, cores):
    return math.ceil((core_ms + wait_ms) / step_ms)


def not_whole(core_ms, wait_ms, step_ms, cores):
    found = by_ceil(core_ms, wait_ms, step_ms, cores)
    return None if found is None else float(found)


RIGHT = {
    "10.images": [WithRows, WithCopies],
    "10.fewest_workers": [by_ceil, by_counting],
}
WRONG = {
    "10.images": [
        (CountsTheHeading, "is no image"),
        (ListsTheFolder, "whatever else is in the folder"),
        (LabelsAreText, "What is read from a table is text"),
        (ClosedTooEarly, "before the file is closed"),
        (ForgetsTheTransforms, "Return what they return"),
        (DecodesFirst, "decode all pixels"),
        (NeverCloses, "Each costs a descriptor"),
        (ReadsAllAtOnce, "a million images would not fit"),
    ],
    "10.fewest_workers": [
        (rounds_down, "A part of a worker"),
        (one_more, "Where it fits exactly"),
        (without_waits, "before its waits are over"),
        (one_a_core_at_most, "more workers than cores"),
        (as_if_cores_were_free, "more workers only share it"),
        (not_whole, "A number of workers is whole"),
    ],
}
