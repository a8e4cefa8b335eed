import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate


def by_pytorch(samples):
    return default_collate(samples)


def by_index(samples):
    return [
        default_collate([sample[position] for sample in samples])
        for position in range(len(samples[0]))
    ]


def a_tuple(samples):
    return tuple(default_collate(samples))


def one_entry_a_sample(samples):
    return [default_collate(list(sample)) for sample in samples]


def pairs_only(samples):
    firsts, seconds = [s[0] for s in samples], [s[1] for s in samples]
    return [default_collate(firsts), default_collate(seconds)]


def not_collated(samples):
    return [list(group) for group in zip(*samples, strict=True)]


def in_half_precision(samples):
    return [torch.tensor([float(s[0]) for s in samples]), default_collate([s[1] for s in samples])]


def prints_it(samples):
    print(default_collate(samples))


def padded_by_pytorch(samples):
    lengths = torch.as_tensor([s.shape[0] for s in samples])
    return [pad_sequence(samples, batch_first=True), lengths]


def padded_by_cat(samples):
    longest = max(map(len, samples))
    rows = [torch.cat([s, s.new_zeros(longest - len(s))]) for s in samples]
    return [torch.stack(rows), torch.tensor(list(map(len, samples)))]


def float_zeros(samples):
    padded = torch.zeros(len(samples), max(map(len, samples)))
    for row, sample in zip(padded, samples, strict=True):
        row[: len(sample)] = sample
    return [padded, torch.tensor([len(s) for s in samples])]


def padded_in_front(samples):
    padded = torch.zeros(len(samples), max(map(len, samples)), dtype=samples[0].dtype)
    for row, sample in zip(padded, samples, strict=True):
        row[len(row) - len(sample) :] = sample
    return [padded, torch.tensor([len(s) for s in samples])]


def cut_to_the_shortest(samples):
    shortest = min(map(len, samples))
    return [torch.stack([s[:shortest] for s in samples]), torch.tensor([shortest] * len(samples))]


def eight_wide(samples):
    padded = torch.zeros(len(samples), 8, dtype=samples[0].dtype)
    for row, sample in zip(padded, samples, strict=True):
        row[: len(sample)] = sample
    return [padded, torch.tensor([len(s) for s in samples])]


def a_list_of_lengths(samples):
    return [pad_sequence(samples, batch_first=True), [len(s) for s in samples]]


def lengths_after_padding(samples):
    padded = pad_sequence(samples, batch_first=True)
    return [padded, torch.tensor([len(row) for row in padded])]


def batch_last(samples):
    return [pad_sequence(samples), torch.tensor([len(s) for s in samples])]


def lengths_first(samples):
    return padded_by_pytorch(samples)[::-1]


def padded_alone(samples):
    return pad_sequence(samples, batch_first=True)


RIGHT = {
    "01.collate_tuples": [by_pytorch, by_index],
    "01.collate_padded": [padded_by_pytorch, padded_by_cat],
}
WRONG = {
    "01.collate_tuples": [
        (a_tuple, "to come in a list"),
        (one_entry_a_sample, "One entry a sample"),
        (pairs_only, "A position got lost"),
        (not_collated, "Regrouped, but not collated"),
        (in_half_precision, "Leave the dtype to"),
        (prints_it, "is there a `return`"),
    ],
    "01.collate_padded": [
        (float_zeros, "torch.zeros"),
        (padded_in_front, "the zeros at its end"),
        (cut_to_the_shortest, "cut off"),
        (eight_wide, "Longer than needed"),
        (a_list_of_lengths, "Both are tensors"),
        (lengths_after_padding, "before padding"),
        (batch_last, "the batch dimension comes first"),
        (lengths_first, "the lengths second"),
        (padded_alone, "a list of two tensors"),
    ],
}
