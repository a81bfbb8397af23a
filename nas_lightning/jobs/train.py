"""Training of an architecture: find the genotype, build its network, fit, test once, report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf

from nas_lightning.callbacks.stopwatch import Stopwatch
from nas_lightning.cost.counts import cost
from nas_lightning.data import ImageData
from nas_lightning.errors import InputError
from nas_lightning.genotype import FILE_NAME, Genotype, read_genotypes, write_genotypes
from nas_lightning.jobs.configured import (
    checkpoint,
    make,
    make_trainer,
    metrics,
    own_folders,
    own_parts,
    sizes_of,
    space_config,
    took,
)
from nas_lightning.jobs.ending import announce, finish, uses
from nas_lightning.jobs.parts import Parts
from nas_lightning.models.file import FILE_NAME as MODEL
from nas_lightning.models.file import describe, description, inherit, write
from nas_lightning.runs.tracking import publish
from nas_lightning.spaces import Network, SearchSpace, make_space
from nas_lightning.spaces.registry import find_option
from nas_lightning.text import short_path
from nas_lightning.training.logits import freeze_unused
from nas_lightning.training.retrain import Retrain
from nas_lightning.version import __version__

_OFFERED = ("space", "data", "folder", "seed")
"""The parts that callbacks of a training may name: the network is the module's."""
BEST = "checkpoints/best.ckpt"  # of runs that validate


class Architecture(NamedTuple):
    """What a network is built from, besides the images."""

    genotype: Genotype
    space: SearchSpace
    sizes: dict[str, Any]


def run(cfg: DictConfig, end: Callable[..., None] = finish) -> dict[str, Any]:
    """Train; returns what the run's summary says, which `end` shows."""
    elapsed = Stopwatch()
    genotype, space, sizes = architecture(cfg)
    sizes = sizes_of(space.network, sizes, "network")
    data = make(cfg.dataset)
    network = space.network(genotype, in_channels=data.image[0], num_classes=data.num_classes, **sizes)
    known = description(space, genotype, sizes, data.image, data.classes, data.mean, data.std)
    known.check(network)
    origin = start_from(cfg, network, data)
    module = make(cfg.retrain, network=network, num_classes=data.num_classes)
    data.setup("fit")
    trainer = make_trainer(cfg, Parts(space, data, Path(cfg.run), cfg.seed), [elapsed], _OFFERED)
    size, start = cost(network, data.image), checkpoint(cfg, module)
    freeze_unused(network, data.image)
    announce(f"Training a network of {space.name} on {data.name}: {size}{origin}", cfg)
    trainer.fit(module, data, ckpt_path=start)
    use_best(module, Path(cfg.run) / BEST)
    trainer.test(module, data, verbose=False)
    facts = {
        "space": space.name,
        "dataset": data.name,
        "seed": cfg.seed,
        "versions": {"nas_lightning": __version__, "torch": torch.__version__},
        "params": size.params,
        "macs": size.macs,
        "metrics": metrics(trainer, Path(cfg.run)),
        "notation": [space.notation(genotype)],
    }
    if trainer.is_global_zero:
        write_genotypes(Path(cfg.run) / FILE_NAME, [genotype], **facts)
        write(trained(module), Path(cfg.run) / MODEL, known)
        end(Path(cfg.run), took(facts, elapsed), [str(genotype)], uses(cfg))
    publish(trainer.loggers, Path(cfg.run))
    return took(facts, elapsed)


def architecture(cfg: DictConfig) -> Architecture:
    """The genotype, its space, and the sizes of the network: the space's own, then the user's."""
    if cfg.init is not None:
        return _of_trained(cfg)
    if cfg.get("genotype") is None:
        raise InputError(
            "expected an architecture: genotype=file genotype.path=<run of search.py>, or a published one "
            "such as genotype=darts_v2 (--help lists them)"
        )
    chosen: Any = OmegaConf.to_container(cfg.genotype, resolve=True)
    if "path" in chosen:
        found = read_genotypes(chosen["path"])
        if not isinstance(chosen["index"], int) or not 0 <= chosen["index"] < len(found):
            raise InputError(
                f"expected an index below {len(found)}", got=chosen["index"], where="genotype.index"
            )
        genotype = found[chosen["index"]]
        try:
            space = make_space(genotype.space, genotype.settings.to_dict(), **own_parts(cfg))
            space.check(genotype)
        except InputError as error:
            raise InputError(str(error), where=chosen["path"]) from None
    else:
        space = make_space(chosen["space"], folders=own_folders())
        genotype = space.parse(chosen)
    sizes = _plain(space_config(find_option(space.name, own_folders())).network)
    return Architecture(genotype, space, {**sizes, **_plain(cfg.network)})


def _of_trained(cfg: DictConfig) -> Architecture:
    """The architecture of the network that training starts from."""
    if cfg.get("genotype") is not None:
        raise InputError("expected either init, which has an architecture, or a genotype", got="both")
    known = describe(cfg.init, **own_parts(cfg))
    return Architecture(known.genotype, known.make_space(), {**known.sizes, **_plain(cfg.network)})


def start_from(cfg: DictConfig, network: Network, data: ImageData) -> str:
    """Take over the weights that `init` names; returns what there is to say about it."""
    if cfg.init is None:
        return ""
    channels = describe(cfg.init).image[0]
    if channels != data.image[0]:
        raise InputError(f"expected images of {channels} channels, as init has", got=data.image[0])
    whole = inherit(network, cfg.init, data.classes)
    classifier = "" if whole else f" with a new classifier of {data.num_classes} classes"
    return f", from {short_path(cfg.init)}{classifier}"


def use_best(module: Retrain, path: Path) -> None:
    """The weights of the best validation accuracy, in runs that validate; the last epoch's in others."""
    if path.is_file():
        module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["state_dict"])


def trained(module: Retrain) -> Network:
    """The network with the weights that were tested, which are the averaged ones where they are kept."""
    return module.network if module.average is None else module.average.module


def _plain(config: DictConfig) -> dict[str, Any]:
    return OmegaConf.to_container(config, resolve=True)  # type: ignore[return-value]
