"""Small data sets in the published formats."""

import gzip
import io
import pickle
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from nas_lightning.utils.randomness import seed_of


def draw_picture(seed, height=10, width=12, form="PNG"):
    """The bytes of an image file."""
    random = np.random.default_rng(seed_of(seed))
    stream = io.BytesIO()
    Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(stream, form)
    return stream.getvalue()


@pytest.fixture
def picture():
    """The bytes of an image file, by a seed."""
    return draw_picture


@pytest.fixture
def class_folders():
    """Writes `per_class` images into one folder a class."""

    def write(root, classes=("cat", "dog", "owl"), per_class=10, **options):
        for number, name in enumerate(classes):
            (root / name).mkdir(parents=True)
            for index in range(per_class):
                (root / name / f"{index:02}.png").write_bytes(draw_picture(100 * number + index, **options))
        return root

    return write


@pytest.fixture
def as_tar():
    """Packs a folder into an uncompressed tar file beside it."""

    def pack(folder, mode="w", suffix=".tar", name="."):
        path = folder.with_suffix(suffix)
        with tarfile.open(path, mode) as archive:
            archive.add(folder, name)
        return path

    return pack


def _rows(count, size, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, size), dtype=np.uint8)


def _pickle(path, content):
    path.write_bytes(pickle.dumps(content, protocol=2))


@pytest.fixture
def cifar10_batches(tmp_path):
    """Twenty images a file."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        _pickle(folder / name, {"data": _rows(20, 3072, number), "labels": [n % 10 for n in range(20)]})
    _pickle(folder / "batches.meta", {"label_names": [f"name{n}" for n in range(10)]})
    return tmp_path


@pytest.fixture
def cifar100_batches(tmp_path):
    """Two images a class."""
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for number, name in enumerate(["train", "test"]):
        labels = [n % 100 for n in range(200)]
        _pickle(
            folder / name, {"data": _rows(200, 3072, number), "fine_labels": labels, "coarse_labels": labels}
        )
    _pickle(folder / "meta", {"fine_label_names": [f"name{n}" for n in range(100)]})
    return tmp_path


@pytest.fixture
def imagenet16_batches(tmp_path):
    """A hundred images a file, labels from 1 to 200."""
    for number, name in enumerate([*(f"train_data_batch_{n}" for n in range(1, 11)), "val_data"]):
        labels = [(100 * number + n) % 200 + 1 for n in range(100)]
        _pickle(tmp_path / name, {"data": _rows(100, 768, number), "labels": labels, "mean": np.zeros(768)})
    return tmp_path


def idx_bytes(array):
    """An array in the IDX format."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def fashion_files():
    """Writes the four files, compressed or not."""

    def write(folder, compressed):
        folder.mkdir(parents=True, exist_ok=True)
        for part, count in (("train", 70), ("t10k", 30)):
            arrays = {
                "images-idx3": _rows(count, 784, count).reshape(-1, 28, 28),
                "labels-idx1": np.arange(count) % 10,
            }
            for name, array in arrays.items():
                content = idx_bytes(array.astype(np.uint8))
                path = folder / f"{part}-{name}-ubyte{'.gz' if compressed else ''}"
                path.write_bytes(gzip.compress(content) if compressed else content)

    return write


@pytest.fixture
def tiny_imagenet(tmp_path):
    """The published layout with three classes."""
    root = tmp_path / "tiny-imagenet-200"
    lines = []
    for number, name in enumerate(["n01", "n02", "n03"]):
        (root / "train" / name / "images").mkdir(parents=True)
        for index in range(5):
            content = draw_picture(10 * number + index, 64, 64, "JPEG")
            (root / "train" / name / "images" / f"{name}_{index}.JPEG").write_bytes(content)
        lines += [f"val_{number}{i}.JPEG\t{name}\t0\t0\t62\t62" for i in range(2)]
    (root / "val" / "images").mkdir(parents=True)
    (root / "val" / "val_annotations.txt").write_text("\n".join(reversed(lines)) + "\n")
    for line in lines:
        (root / "val" / "images" / line.split()[0]).write_bytes(
            draw_picture(seed_of(len(line)), 64, 64, "JPEG")
        )
    return tmp_path
