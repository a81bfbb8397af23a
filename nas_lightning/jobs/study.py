"""A study: build the parts that it asks for, run it, write and show what it found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import nn

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.jobs.parts import make, own_folders, sizes_of
from nas_lightning.options import groups
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces import SearchSpace
from nas_lightning.studies.base import Study
from nas_lightning.text import short_path
from nas_lightning.version import __version__


def run(cfg: DictConfig) -> dict[str, Any]:
    """Run the study; returns what the run's summary says."""
    if cfg.get("study") is None:
        options = ", ".join(groups(own_folders())["study"])
        raise InputError(f"expected a study: study=<one of {options}> (--help says what each is)")
    study: Study = instantiate(cfg.study, _convert_="all")  # lists and dictionaries as Python has them
    if not isinstance(study, Study):
        raise InputError("expected a subclass of Study", got=type(study).__name__, where="study._target_")
    name = HydraConfig.get().runtime.choices["study"]
    wanted, offered = study.wants(), parts(cfg)
    found = {part: offered[part]() for part in wanted}
    missing = [part for part, needed in wanted.items() if needed and found[part] is None]
    if missing:
        raise InputError(
            f"expected a {missing[0]}, which the study needs: {missing[0]}=… (--help lists them)"
        )
    print(f"Study {name}, seed {cfg.seed} → {short_path(cfg.run)}", flush=True)
    findings = study.run(**found)
    files = findings.write(Path(cfg.run))
    _show(findings, files)
    return {
        "study": name,
        "seed": cfg.seed,
        "versions": {"nas_lightning": __version__, "torch": torch.__version__},
        "metrics": dict(findings.numbers),
        "files": [str(path.relative_to(cfg.run)) for path in files],
    }


def parts(cfg: DictConfig) -> dict[str, Callable[[], Any]]:
    """How each of `nas_lightning.studies.base.PARTS` is made."""
    space: SearchSpace = make(cfg.space)
    data: SearchData = make(cfg.search_data, data=make(cfg.dataset))

    def shape() -> dict[str, int]:
        return {"in_channels": data.image[0], "num_classes": data.num_classes}

    def network() -> Callable[..., nn.Module]:
        return _sized(space.network, shape(), sizes_of(space.network, cfg.network, "network"))

    def supernet() -> Callable[..., nn.Module]:
        return _sized(space.supernet, shape(), sizes_of(space.supernet, cfg.supernet, "supernet"))

    def benchmark() -> Any:
        found = make(cfg.benchmark) if cfg.benchmark else None
        if found is not None:
            found.check_space(space)
        return found

    def images() -> SearchData:
        data.setup()  # finds what is wrong with them
        return data

    return {
        "space": lambda: space,
        "network": lambda: _tried(network(), space),
        "supernet": supernet,
        "data": images,
        "benchmark": benchmark,
        "retrain": lambda: lambda net: make(cfg.retrain, network=net, num_classes=data.num_classes),
        "trainer": lambda: lambda **changes: make(cfg.trainer, logger=False, **changes),
        "folder": lambda: Path(cfg.run),
    }


def _sized(build: Callable[..., Any], shape: dict[str, int], sizes: dict[str, Any]) -> Callable[..., Any]:
    """`build` with the images' shape and the sizes that were chosen, which a call may change."""

    def sized(*args: Any, **changes: Any) -> Any:
        return build(*args, **{**shape, **sizes, **changes})

    return sized


def _tried(network: Callable[..., nn.Module], space: SearchSpace) -> Callable[..., nn.Module]:
    """The same; sizes that cannot be are found now, not after the study has begun."""
    any_genotype = space.sample(torch.Generator().manual_seed(0))
    with torch.device("meta"):
        network(any_genotype)
    return network


def _show(findings: Findings, files: list[Path]) -> None:
    tables = [table.markdown() for table in findings.tables if not table.long]
    paths = "\n".join(short_path(path) for path in files)
    print("\n" + "\n\n".join([*tables, paths]), flush=True)
