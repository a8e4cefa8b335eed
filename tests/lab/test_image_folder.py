"""The image folder is the same from the same seed, and its samples are what the loader needs."""

import contextlib
import os
import pickle
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import labkit
from labkit.device import find_device
from labkit.lab import image_folder, image_sheet
from labkit.lab.image_folder import KINDS, SIZES, ImageFolder
from labkit.lab.image_samples import COLLATES, SIDE, Prepare, as_float, crop_and_flip, decode
from labkit.lab.plots.pictures import png
from labkit.lab.small_net import Training
from labkit.simulated import SimulatedDevice


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return image_folder.make(tmp_path_factory.mktemp("images"), images=24)


@pytest.fixture(scope="module")
def fonts_are_open(folder):
    """matplotlib keeps the files of fonts open, once it has used them."""
    png(image_sheet.show(folder, images=1).figure)


def contents(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def test_the_same_seed_draws_the_same_files_and_another_seed_others(folder, tmp_path):
    again = image_folder.make(tmp_path / "again", images=24)
    other = image_folder.make(tmp_path / "other", images=24, seed=1)
    assert contents(again) == contents(folder)
    assert contents(other).keys() == contents(folder).keys()
    assert all(contents(other)[name] != found for name, found in contents(folder).items())


def test_sizes_come_in_turn_and_kinds_equally_often(folder):
    dataset = ImageFolder(folder)
    assert len(dataset) == 24
    assert [dataset[i][0].size for i in range(8)] == [*SIZES, *SIZES]
    assert Counter(label for _, label in dataset) == dict.fromkeys(range(len(KINDS)), 8)
    assert all(Image.open(path).format == "JPEG" for path in Path(folder).glob("*.jpg"))


def test_fewer_than_one_image_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="one image or more"):
        image_folder.make(tmp_path, images=0)


def test_a_folder_without_a_table_says_how_to_make_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"labels\.csv.*image_folder\.make"):
        ImageFolder(tmp_path)


def test_transforms_get_the_opened_image_and_the_label(folder):
    seen = []
    dataset = ImageFolder(folder, seen.append, KINDS.__getitem__)
    sample, kind = dataset[3]
    assert sample is None
    assert kind == KINDS[ImageFolder(folder)[3][1]]
    assert type(ImageFolder(folder)[3][1]) is int
    before = seen[0].size
    with Image.open(Path(folder) / "0003.jpg") as image:
        assert image.size == before == SIZES[3]


def test_a_transform_may_draft_and_no_file_stays_open(folder):
    sizes = []

    def drafts(image):
        image.draft("RGB", (72, 72))
        sizes.append(image.size)
        return image

    dataset = ImageFolder(folder, drafts)
    kept = [dataset[i] for i in range(len(dataset))]
    targets = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of listdir itself is closed by now
            targets.append(os.readlink(f"/proc/self/fd/{fd}"))
    assert not [target for target in targets if target.startswith(str(folder))]
    assert len(kept) == 24
    assert {w * h for w, h in sizes} == {w * h // 16 for w, h in SIZES}


def test_it_holds_names_and_labels_and_not_pixels(folder):
    dataset = ImageFolder(folder, Prepare())
    assert len(pickle.dumps(dataset)) < 4_000
    assert torch.equal(
        pickle.loads(pickle.dumps(ImageFolder(folder, Prepare(augment=False))))[0][0],
        ImageFolder(folder, Prepare(augment=False))[0][0],
    )


@pytest.mark.parametrize("decoding", ["full", "draft"])
@pytest.mark.parametrize("pixels", ["float32", "uint8"])
def test_all_samples_have_one_shape_and_draft_changes_little(folder, decoding, pixels):
    plain = ImageFolder(folder, Prepare(augment=False))
    dataset = ImageFolder(folder, Prepare(decoding, pixels, augment=False))
    for i in range(4):
        sample, label = dataset[i]
        expected, expected_label = plain[i]
        assert (sample.shape, sample.dtype) == ((3, SIDE, SIDE), getattr(torch, pixels))
        assert sample.is_contiguous()
        assert label == expected_label
        assert (as_float(sample) - expected).abs().mean() < 4 / 255


def test_the_middle_is_kept_without_augmentation():
    image = Image.new("RGB", (200, 100), "white")
    image.paste("black", (0, 0, 46, 100))  # left of the middle square, and of what is smoothed in
    assert decode(image, 72).min() == 255
    assert decode(image, 72).shape == (3, 72, 72)


def test_crops_are_everywhere_and_half_are_flipped():
    image = torch.arange(3 * 8 * 8, dtype=torch.uint8).reshape(3, 8, 8)
    torch.manual_seed(0)
    found = Counter()
    for _ in range(400):
        square = crop_and_flip(image, 6)
        assert square.shape == (3, 6, 6)
        flipped = bool(square[0, 0, 0] > square[0, 0, 1])
        corner = int(square.flip(2)[0, 0, 0] if flipped else square[0, 0, 0])
        found[divmod(corner, 8), flipped] += 1
    assert {place for place, _ in found} == {(top, left) for top in range(3) for left in range(3)}
    assert 120 < sum(count for (_, flipped), count in found.items() if flipped) < 280


def test_every_collate_function_gives_the_same_batch(folder):
    dataset = ImageFolder(folder, Prepare("draft", "uint8", augment=False))
    settings = {"batch_size": 5, "num_workers": 1, "multiprocessing_context": "fork"}
    expected = [(x.clone(), y.clone()) for x, y in DataLoader(dataset, batch_size=5)]
    for collate in COLLATES.values():
        got = list(labkit.DataLoader(dataset, collate_fn=collate, **settings))
        assert all(
            torch.equal(a, x) and torch.equal(b, y)
            for (a, b), (x, y) in zip(got, expected, strict=True)
        )


def test_a_small_net_learns_to_tell_the_kinds_apart(tmp_path):
    """Better than the commonest label on images that it has not seen: 1 of 3 is chance."""
    folder = image_folder.make(tmp_path, images=72)
    samples = list(ImageFolder(folder, Prepare("draft", augment=False)))
    images = torch.stack([image for image, _ in samples])
    labels = torch.tensor([label for _, label in samples])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with SimulatedDevice(launch_us=0) as device:
            training = Training(find_device(device), len(KINDS))
            chance = torch.Generator().manual_seed(0)
            for _ in range(6):
                for chosen in torch.randperm(56, generator=chance).split(8):
                    batch = device.to_device(images[chosen]), device.to_device(labels[chosen])
                    loss = training.step(*batch)
            assert loss.item() < 1.0
            assert training.right(samples[56:]) > 10  # of 16
    finally:
        torch.set_num_threads(threads)


def test_the_sheet_says_what_it_shows_in_light_and_dark(folder, fonts_are_open):
    picture = image_sheet.show(folder, images=5)
    assert picture.alt.count("pixels:") == 5
    assert f"{SIZES[0][0]} × {SIZES[0][1]} pixels" in picture.alt
    assert png(picture.draw(False)) != png(picture.draw(True))
    with pytest.raises(ValueError, match="one image or more"):
        image_sheet.show(folder, images=0)


@pytest.fixture
def temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_example_is_made_once_and_nothing_else_stays(temporary_files):
    first = image_folder.example(4)
    times = {path: path.stat().st_mtime_ns for path in first.iterdir()}
    assert image_folder.example(4) == first
    assert {path: path.stat().st_mtime_ns for path in first.iterdir()} == times
    assert list(temporary_files.iterdir()) == [first]
    assert len(ImageFolder(first)) == 4
    assert first.stat().st_mode & 0o077 == 0


def test_an_example_of_which_parts_are_gone_is_made_anew(temporary_files):
    first = image_folder.example(4)
    before = contents(first)
    (first / "0002.jpg").unlink()
    assert contents(image_folder.example(4)) == before


def test_what_is_in_the_way_of_the_example_is_told(temporary_files, monkeypatch):
    folder = image_folder.example(4)
    (folder / "0002.jpg").unlink()
    monkeypatch.setattr(image_folder.shutil, "rmtree", lambda *args, **options: None)
    with pytest.raises(FileExistsError, match="is in the way"):
        image_folder.example(4)
