"""What a study is: one class in one file, and one yaml in `conf/study`; nothing else has to know of it.

The class is a `Study`. Its constructor takes the study's options, which are the keys of the yaml; its `run`
names the parts that it wants of those in `PARTS`, and gets them. It returns `Findings`; the command writes
them into the run's folder and shows the tables:

    run(self, space, network, folder)            with whatever networks the user chose
    run(self, benchmark=None)                    with a benchmark where the user named one
    run(self, data, retrain, trainer, folder)    a study that trains

What takes long goes to files in `folder` as it is computed, such as the pools of
`nas_lightning.metrics.pool.score_pool`; a study that is called again with the same folder (`resume=DIR`)
computes only what is missing, and ends in the same tables. A study whose files depend on more settings than
its own options, which `resume=` keeps, refuses others, as `score_pool` does.

The yaml begins with one line that `--help` shows, and has a comment `# Small: …`, the arguments with which
the study takes seconds; `tests/studies/test_contract.py` runs it with these, twice, in a folder that has a
table of NAS-Bench-201, `table.csv`. Where a study needs a part that is not there by default, its yaml asks
for it: `# @package _global_`, and `override /benchmark: nasbench201` among its defaults.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nas_lightning.errors import InputError
from nas_lightning.runs.facts import Findings

if TYPE_CHECKING:
    pass

PARTS: Mapping[str, str] = {
    "space": "the search space",
    "network": "genotype → its network; keywords change the sizes: network(genotype, channels=8)",
    "network_sizes": "what those networks are built with besides, by name",
    "supernet": "() → a supernet; keywords change its sizes",
    "data": "the images, as `SearchData`",
    "benchmark": "the tabular benchmark; without a default of None, the user must name one",
    "retrain": "network → the LightningModule that trains it",
    "trainer": "() → a trainer without loggers; keywords change it: trainer(max_epochs=3)",
    "folder": "the run's folder",
    "seed": "the run's seed",
}
"""What the command has for a study's `run`, by the name of its argument."""


class Study(ABC):
    """A question that is answered by tables and figures.

    >>> class Count(Study):
    ...     def run(self, space, benchmark=None):
    ...         return Findings([], numbers={"groups": len(space.groups)})
    >>> Count.wants()
    {'space': True, 'benchmark': False}
    """

    @abstractmethod
    def run(self, *parts: Any, **named: Any) -> Findings:
        """The answer. A subclass names the parts that it wants as arguments; see `PARTS`."""

    @classmethod
    def wants(cls) -> dict[str, bool]:
        """The parts that `run` names, and whether it cannot do without."""
        named = list(inspect.signature(cls.run).parameters.values())[1:]
        unknown = [parameter.name for parameter in named if parameter.name not in PARTS]
        if unknown:
            raise InputError(
                f"expected parts of {', '.join(PARTS)}", got=unknown[0], where=f"{cls.__name__}.run"
            )
        return {parameter.name: parameter.default is parameter.empty for parameter in named}
