"""The official files of NAS-Bench-201 (arXiv:2001.00326) and NATS-Bench (arXiv:2009.00437), read once.

They hold every epoch of every training run, need tens of gigabytes of memory or minutes of loading, and can
only be read by the packages that they were published with. What is wanted of them fits in a table of a
megabyte. Both are pickles, which can run code when they are read: they are, where it is said that their
origin is trusted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from nas_lightning.benchmarks.formats.columns import Columns
from nas_lightning.errors import InputError
from nas_lightning.progress import follow

ARCH = "arch"
DATASETS = ("cifar10", "cifar100", "imagenet16-120")
OPTIONAL = tuple(f"{name}-{what}" for what in ("valid", "valid-12") for name in DATASETS)

_OFFICIAL_NAMES = {"cifar10": "cifar10", "cifar100": "cifar100", "imagenet16-120": "ImageNet16-120"}
_VALID_NAMES = {**_OFFICIAL_NAMES, "cifar10": "cifar10-valid"}  # trained on one half, validated on the other


def read(path: Path, *, trust: bool = False) -> Columns:
    """The columns of an official file, through the package that it came with; `trust` allows that."""
    nats = path.is_dir() or path.name.endswith(".pickle.pbz2")
    if not nats and path.suffix != ".pth":
        raise InputError(
            "expected .csv, .parquet, NATS-tss-… (folder or .pickle.pbz2) or NAS-Bench-201-….pth",
            got=path.name,
            where="benchmark.path",
        )
    if not trust:
        expected = (
            "expected a table .csv or .parquet; an official file is a pickle, which can run code: where it "
            "is from its authors, convert --trust or benchmark.trust=true"
        )
        raise InputError(expected, got=path.name, where="benchmark.path")
    package = _package("nats_bench" if nats else "nas_201_api", path)
    try:
        api = _nats_bench(package, path) if nats else _nasbench201(package, path)
        return columns(api, forget=path.is_dir())
    except Exception as error:  # a pickle raises whatever its bytes lead to
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"expected an official file: {reason[:200]}", where=path) from None


def _package(name: str, path: Path) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        install = {"nats_bench": "nats-bench", "nas_201_api": "nas-bench-201"}[name]
        raise InputError(f"expected the package {name} (pip install {install})", where=path) from None


def _nats_bench(package: Any, path: Path) -> Any:
    return package.create(str(path), "tss", fast_mode=path.is_dir(), verbose=False)


def _nasbench201(package: Any, path: Path) -> Any:
    with _allow_pickles():
        return package.NASBench201API(str(path), verbose=False)


@contextmanager
def _allow_pickles() -> Iterator[None]:
    """The package calls `torch.load` as it was before that refused objects other than tensors."""
    name = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def columns(api: Any, *, forget: bool = False) -> Columns:
    """Means over the training runs of each architecture; a column that is not complete is left out.

    With `forget`, an architecture that the package has read from a folder of its own leaves the memory again.
    """
    values_of: dict[str, list[Any]] = {ARCH: list(api.meta_archs)}
    for index in follow(range(len(api.meta_archs)), "architectures"):
        for dataset, name in _OFFICIAL_NAMES.items():
            valid = _VALID_NAMES[dataset]
            row = {
                dataset: _accuracy(api, index, name, "200", "test-accuracy"),
                f"{dataset}-valid": _accuracy(api, index, valid, "200", "valid-accuracy"),
                f"{dataset}-valid-12": _accuracy(api, index, valid, "12", "valid-accuracy"),
            }
            for column, value in row.items():
                values_of.setdefault(column, []).append(value)
        if forget:
            api.arch2infos_dict.clear()
    return {name: values for name, values in values_of.items() if None not in values}


def _accuracy(api: Any, index: int, dataset: str, epochs: str, what: str) -> float | None:
    try:
        return api.get_more_info(index, dataset, hp=epochs, is_random=False).get(what)
    except KeyError:  # not every version trained on every data set for 12 epochs
        return None
