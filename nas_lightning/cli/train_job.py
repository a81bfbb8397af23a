"""Training of an architecture: find the genotype, build its network, fit, test once, report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from nas_lightning.analysis.cost import cost
from nas_lightning.cli.ending import announce, finish
from nas_lightning.cli.parts import checkpoint, make, make_trainer, metrics, sizes_of, space_config
from nas_lightning.errors import InputError
from nas_lightning.genotype import FILE_NAME, Genotype, read_genotypes, write_genotypes
from nas_lightning.spaces import SearchSpace
from nas_lightning.tracking import publish
from nas_lightning.version import __version__


def run(cfg: DictConfig) -> dict[str, Any]:
    """Train; returns what the run's summary says."""
    genotype, space, sizes = architecture(cfg)
    sizes = sizes_of(space.network, sizes, "network")
    data = make(cfg.dataset)
    network = space.network(genotype, in_channels=data.image[0], num_classes=data.num_classes, **sizes)
    module = make(cfg.retrain, network=network, num_classes=data.num_classes)
    data.setup("fit")
    trainer = make_trainer(cfg)
    size, start = cost(network, data.image), checkpoint(cfg, module)
    announce(f"Training a network of {space.name} on {data.name}: {size}", cfg)
    trainer.fit(module, data, ckpt_path=start)
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
        finish(Path(cfg.run), facts, [str(genotype)], None)
    publish(trainer.loggers, Path(cfg.run))
    return facts


def architecture(cfg: DictConfig) -> tuple[Genotype, SearchSpace, dict[str, Any]]:
    """The genotype, its space, and the sizes of the network: the space's own, then the user's."""
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
        config = space_config(genotype.space)
        space = make(config.space)
        try:
            space.check(genotype)
        except InputError as error:
            raise InputError(str(error), where=chosen["path"]) from None
    else:
        config = space_config(chosen["space"])
        space = make(config.space)
        genotype = space.parse(chosen)
    return genotype, space, {**config.network, **cfg.network}
