"""Solutions to the exercises of `01_from_dataset_to_batch.ipynb`.

`collate` is the one that the notebook builds.
"""

import torch


def collate(samples):
    """Turn a list of samples into one batch."""
    first = samples[0]
    if isinstance(first, torch.Tensor):
        return torch.stack(samples)
    if isinstance(first, float):
        return torch.tensor(samples, dtype=torch.float64)
    if isinstance(first, int):
        return torch.tensor(samples)
    if isinstance(first, dict):
        return {key: collate([sample[key] for sample in samples]) for key in first}
    return samples


def collate_tuples(samples):
    """[(x0, y0), (x1, y1), ...] becomes [batch of x, batch of y]."""
    return [collate(list(group)) for group in zip(*samples, strict=True)]


def collate_padded(samples):
    """1-D tensors become [padded, lengths]."""
    lengths = torch.tensor([len(sample) for sample in samples])
    padded = torch.zeros(len(samples), int(lengths.max()), dtype=samples[0].dtype)
    for row, sample in zip(padded, samples, strict=True):
        row[: len(sample)] = sample
    return [padded, lengths]
