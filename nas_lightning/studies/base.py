"""The contract of studies: a class with a `run` method, and a yaml in `conf/study` that names it.

The constructor of a `Study` takes its options, which are the keys of the yaml. `run` requests the parts of
the job that it needs by the names of its arguments, see `PARTS`, and returns `Findings`. The command writes
them into the run's folder and prints the tables:

    run(self, space, network, folder)            networks of the space that the user chose
    run(self, benchmark=None)                    a benchmark, if the user chose one
    run(self, data, retrain, trainer, folder)    a study that trains

Expensive results are written to files in `folder` as they are computed, for example by
`nas_lightning.metrics.pool.score_pool`. A study that is run again with the same folder (`resume=DIR`)
computes only what is missing, and returns the same tables. If its files depend on settings that `resume=`
does not restore, it must refuse other settings, as `score_pool` does.

The first line of the yaml is its description in `--help`. A comment `# Small: …` lists overrides with which
the study takes seconds; `tests/studies/test_contract.py` runs it twice with these, in a folder with a table
of NAS-Bench-201, `table.csv`. A study that needs a part that is not chosen by default overrides it in its
yaml: `# @package _global_`, and `override /benchmark: nasbench201` in the defaults list.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.runs.facts import Findings

PARTS: Mapping[str, str] = {
    "space": "the search space",
    "network": "builds the network of a genotype; keywords change its sizes: network(genotype, channels=8)",
    "network_sizes": "the sizes of those networks, by name",
    "supernet": "builds a supernet; keywords change its sizes",
    "data": "the images, as `SearchData`",
    "benchmark": "the tabular benchmark; required unless the argument has a default of None",
    "retrain": "builds the LightningModule that trains a network",
    "trainer": "builds a trainer without loggers; keywords change its options: trainer(max_epochs=3)",
    "folder": "the run's folder",
    "accelerator": "where the trainer computes, as `torch.device`",
    "seed": "the run's seed",
}
"""Parts that the command passes to `run`, by the names of its arguments."""


class Study(ABC):
    """A question about architectures that is answered by tables and figures.

    >>> class Count(Study):
    ...     def run(self, space, benchmark=None):
    ...         return Findings([], numbers={"groups": len(space.groups)})
    >>> Count.wants()
    {'space': True, 'benchmark': False}
    """

    @abstractmethod
    def run(self, *parts: Any, **named: Any) -> Findings:
        """Return the tables and figures. The arguments of a subclass are names of `PARTS`."""

    @classmethod
    def wants(cls) -> dict[str, bool]:
        """Return the parts that `run` requests, and whether each is required."""
        named = list(inspect.signature(cls.run).parameters.values())[1:]
        unknown = [parameter.name for parameter in named if parameter.name not in PARTS]
        if unknown:
            raise InputError(
                f"A parameter of `run` must be one of {', '.join(PARTS)}",
                got=unknown[0],
                where=f"{cls.__name__}.run",
            )
        return {parameter.name: parameter.default is parameter.empty for parameter in named}
