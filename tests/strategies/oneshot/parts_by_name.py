"""The parts that have a yaml, by group and name."""

from hydra.utils import instantiate
from omegaconf import OmegaConf

from tests.yamls import file, options

GROUPS = {
    "sampler": "sampler",
    "arch_step": "arch_step",
    "arch_optimizer": "arch_optimizer",
    "partial": "partial",
    "auxiliary": "auxiliary",
    "perturbation": "perturbation",
    "regularizer": "regularizer",
    "freezing": "freezing",
    "stop": "stopping",
    "selection": "selection",
}
"""The groups of parts, with the arguments of `OneShot` that they are for."""


def part(group, name, **settings):
    """The part of that name, with its yaml's settings and these."""
    loaded = OmegaConf.load(file(group, name))
    node = loaded.strategy[GROUPS[group]] if "strategy" in loaded else loaded
    return instantiate(OmegaConf.merge(node, settings))


__all__ = ["GROUPS", "options", "part"]
