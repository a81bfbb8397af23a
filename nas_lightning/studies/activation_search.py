"""Which activations and skips DARTS chooses (Zhu et al. 2022, arXiv:2209.07238, section 5.1 and figure 1).

The paper reports that ReLU and LeakyReLU win in each layer, that the first layer shows the largest difference
between activations, and that the skips are kept in every layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray

from nas_lightning.checks import PositiveFloat, PositiveInt, checked
from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.files import json_text, read_records, write_whole
from nas_lightning.plots.activations import draw_activations
from nas_lightning.progress import follow
from nas_lightning.runs.findings import Findings
from nas_lightning.spaces import Mlp, SearchSpace, Supernet
from nas_lightning.spaces.activations.layers import ACTIVATION, SKIPS
from nas_lightning.strategies.oneshot.papers.activation_search import ActivationSearch
from nas_lightning.studies.base import Study
from nas_lightning.studies.statistics import mean_estimate
from nas_lightning.studies.training import fit_quietly
from nas_lightning.tables import Entry, Table

Values = NDArray[np.float64]
_RECTIFIERS = ("relu", "leaky_relu")


class ActivationSearchStudy(Study):
    """The same search from several seeds.

    Args:
        seeds: how many; from 0.
        epochs: of each search.
        lr: of the weights.
        arch_lr: of the architecture parameters.

    >>> study = ActivationSearchStudy(seeds=3, epochs=10)
    >>> list(study.wants())
    ['space', 'supernet', 'data', 'trainer', 'folder']
    """

    @checked
    def __init__(
        self,
        *,
        seeds: PositiveInt = 5,
        epochs: PositiveInt = 20,
        lr: PositiveFloat = 0.025,
        arch_lr: PositiveFloat = 3e-3,
    ) -> None:
        self.seeds, self.epochs, self.lr, self.arch_lr = seeds, epochs, lr, arch_lr

    def run(
        self,
        space: SearchSpace,
        supernet: Callable[..., Supernet],
        data: SearchData,
        trainer: Callable[..., pl.Trainer],
        folder: Path,
    ) -> Findings:
        """Search, or read what was searched before; average over the seeds."""
        if not isinstance(space, Mlp):
            raise InputError("expected space=mlp", got=space.name, where="space")
        searches = []
        for seed in follow(range(self.seeds), "searches"):
            torch.manual_seed(seed)
            strategy = ActivationSearch(space, supernet(), seed=seed, lr=self.lr, arch_lr=self.arch_lr)
            searches.append(self._search(strategy, data, trainer, folder / "searches" / f"{seed}.json"))
        weights = {
            name: np.array([one[name] for one in searches], dtype=np.float64) for name in (ACTIVATION, SKIPS)
        }
        shares, skips = weights[ACTIVATION], weights[SKIPS][:, :, -1]  # (seeds, L − 1, ops), (seeds, L − 2)
        accuracies = np.array([one["valid_accuracy"] for one in searches], dtype=np.float64)
        what = f"{data.name}, {self.seeds} searches of {self.epochs} epochs"
        by_name = {name: shares[:, :, column] for column, name in enumerate(space.activations)}
        return Findings(
            [self._layers(by_name, skips, what), _claims(by_name, skips, what)],
            {"activations": draw_activations(by_name, skips)},
            {"supernet_valid_accuracy": float(accuracies.mean())},
        )

    def _search(
        self, strategy: ActivationSearch, data: SearchData, trainer: Callable[..., pl.Trainer], path: Path
    ) -> dict[str, Any]:
        if stored := read_records(path):
            return stored
        fit = fit_quietly(trainer, strategy, data, max_epochs=self.epochs)
        found: dict[str, Any] = {name: matrix.tolist() for name, matrix in strategy.scores().items()}
        found["valid_accuracy"] = float(fit.callback_metrics["valid_accuracy"])
        write_whole(path, json_text(found))
        return found

    def _layers(self, shares: Mapping[str, Values], skips: Values, what: str) -> Table:
        winners = np.array(list(shares)).take(
            np.stack(list(shares.values())).argmax(axis=0)
        )  # (seeds, L − 1)
        rows: list[list[Entry]] = []
        for layer in range(winners.shape[1]):
            names, counts = np.unique(winners[:, layer], return_counts=True)
            wins = ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))
            skip = (
                [None, None]
                if layer == 0
                else [mean_estimate(skips[:, layer - 1]), _count(skips[:, layer - 1])]
            )
            rows.append(
                [layer + 1, *(mean_estimate(values[:, layer]) for values in shares.values()), wins, *skip]
            )
        columns = ["layer", *shares, "wins", "α of its skip", "kept"]
        return Table("layers", f"Probabilities of activations, weights of skips: {what}", columns, rows)


def _claims(shares: Mapping[str, Values], skips: Values, what: str) -> Table:
    """What the paper reports, beside what was found here."""
    stacked = np.stack(list(shares.values()), axis=-1)  # (seeds, L − 1, ops)
    best = stacked.argmax(axis=-1)
    rectified = np.isin(np.array(list(shares)).take(best), _RECTIFIERS)
    spread = (stacked.max(axis=-1) - stacked.min(axis=-1)).mean(axis=0)  # (L − 1,)
    rows: list[list[Entry]] = [
        ["layers in which ReLU or LeakyReLU wins", "all", f"{rectified.sum()} of {rectified.size}"],
        ["layer with the largest difference", "1", str(int(spread.argmax()) + 1)],
        [
            "difference in layer 1, and mean of the others",
            "larger",
            f"{spread[0]:.3f}, {spread[1:].mean():.3f}",
        ],
        ["skips that are kept", "all", _count(skips)],
    ]
    return Table("claims", f"What the paper reports, and what was found: {what}", ["", "paper", "here"], rows)


def _count(alpha: Values) -> str:
    return f"{int((alpha > 0.5).sum())} of {alpha.size}"
