"""What a one-shot search is called, and what its log counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from torch import Tensor

from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.ops import SKIP

_PAPERS = "nas_lightning.strategies.oneshot.papers"


def paper_names(one_shot: type[Any]) -> dict[str, str]:
    """The names of compositions: those of the classes in the folder of papers, and of a user's own."""
    for module in iter_modules(import_module(_PAPERS).__path__):
        import_module(f"{_PAPERS}.{module.name}")
    papers = {paper.__name__: vars(paper).get("made_of", ()) for paper in _subclasses(one_shot)}
    return {made_of: name for name, compositions in papers.items() for made_of in compositions}


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for paper in kind.__subclasses__():
        yield paper
        yield from _subclasses(paper)


def skip_counts(space: SearchSpace, scores: Mapping[str, Tensor]) -> dict[str, float]:
    """How many edges of each cell the scores (edges, ops) would make skips, by the name that is logged."""
    genotype = space.discretise(scores)
    names = [name for name, group in space.groups.items() if group.on_edges and SKIP in group.ops]
    return {f"skips/{name}": float(sum(e.op == SKIP for e in genotype[name].edges)) for name in names}
