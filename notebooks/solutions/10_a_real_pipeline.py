"""Solutions to the exercises of `10_a_real_pipeline.ipynb`."""

import csv
import math
from pathlib import Path

from PIL import Image
from torch.utils.data import Dataset


class Images(Dataset):
    """The images of a folder with a `labels.csv`, and their labels."""

    def __init__(self, folder, transform=None, target_transform=None):
        """Read the table."""
        self.folder = Path(folder)
        self.transform, self.target_transform = transform, target_transform
        with open(self.folder / "labels.csv", newline="") as table:
            self.rows = list(csv.DictReader(table))

    def __len__(self):
        """How many rows the table has."""
        return len(self.rows)

    def __getitem__(self, index):
        """The image and the label of a row."""
        row = self.rows[index]
        with Image.open(self.folder / row["file"]) as image:
            if self.transform is None:
                image.load()
                sample = image
            else:
                sample = self.transform(image)
        label = int(row["label"])
        return sample, label if self.target_transform is None else self.target_transform(label)


def fewest_workers(core_ms, wait_ms, step_ms, cores):
    """The fewest workers that give a batch a step; None if the cores are too few for any."""
    if core_ms > cores * step_ms:
        return None
    return math.ceil((core_ms + wait_ms) / step_ms)
