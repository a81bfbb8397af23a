"""The parts that have a yaml, by group and name."""

from hydra.utils import instantiate
from omegaconf import OmegaConf

from tests.yamls import file, options

GROUPS = (
    *("sampler", "arch_step", "arch_optimizer", "edge_weights", "auxiliary_skip", "perturbation"),
    *("regularizer", "freezing", "early_stop", "selection"),
)
"""The configuration groups of parts, which are also arguments of `OneShot`."""


def part(group, name, **settings):
    """The part of that name, with its yaml's settings and these."""
    loaded = OmegaConf.load(file(group, name))
    node = loaded.strategy[group] if "strategy" in loaded else loaded
    return instantiate(OmegaConf.merge(node, settings))


__all__ = ["GROUPS", "options", "part"]
