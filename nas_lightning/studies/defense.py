"""Robustness of an ensemble to attacks on one of its members (Shu 2022, thesis, table 5.4).

Each member is attacked in turn. The attack accuracy is that of the member on the attacked images, the defense
accuracy that of the ensemble. Images are test images as pixels from 0 to 1, which the networks normalize.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from nas_lightning.data import ImageData, SearchData
from nas_lightning.data.batches import Batch
from nas_lightning.errors import InputError, near_match
from nas_lightning.models.attacks import Attack, defense_round
from nas_lightning.models.ensemble import Ensemble
from nas_lightning.models.evaluation import check_images, pixel_batches
from nas_lightning.models.file import Normalize
from nas_lightning.plots.style import COLORS, INK, label_axes, legend_above, tidy
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import draw_genotypes
from nas_lightning.studies.training import train_networks
from nas_lightning.training.retrain import Retrain
from nas_lightning.utils.devices import CPU
from nas_lightning.utils.files import json_text, read_records, write_whole
from nas_lightning.utils.tables import Table
from nas_lightning.validation import PositiveInt, Seed, at_least, checked, entries

ROUNDS_FILE = "rounds.json"


class Defense(Study):
    """Attack each member in turn, defend with all; report mean and standard deviation over the rounds.

    Args:
        ensemble: folder of a run of `nas-train ensemble=…`; None: train random architectures with the study's
            `retrain`, `trainer`, and `network`.
        members: number of random architectures.
        attacks: names of `settings`, in the order of the table.
        settings: the attacks, by name.
        images: number of test images; None: all.
        seed: seed of the architectures and the attacks.

    >>> from nas_lightning.models import Fgsm
    >>> study = Defense(settings={"fgsm": Fgsm(epsilon=0.02)}, attacks=["fgsm"], ensemble="my_run")
    >>> study.attacks
    {'fgsm': Fgsm(epsilon=0.02)}
    """

    @checked
    def __init__(
        self,
        *,
        settings: Mapping[str, Attack],
        attacks: Annotated[Sequence[str], entries(1)] = ("fgsm", "pgd", "cw"),
        ensemble: str | Path | None = None,
        members: Annotated[int, at_least(2)] = 3,
        images: PositiveInt | None = 1000,
        seed: Seed = 0,
    ) -> None:
        for name in attacks:
            if name not in settings:
                expected = f"Unknown attack ({near_match(name, settings)})"
                raise InputError(expected, got=name, where="study.attacks")
            settings[name].check()
        self.attacks = {name: settings[name] for name in attacks}
        self.ensemble, self.count, self.images, self.seed = ensemble, members, images, seed

    def run(
        self,
        space: SearchSpace,
        network: Callable[..., nn.Module],
        data: SearchData,
        retrain: Callable[[nn.Module], Retrain],
        trainer: Callable[..., pl.Trainer],
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Load or train the members, and attack each of them."""
        if self.ensemble is not None:
            found = Ensemble.load(self.ensemble, with_normalization=True)
            check_images(found, data.data)
            members = list(found.members)
            if len(members) < 2:
                raise InputError("The ensemble must have several networks", got=1, where="study.ensemble")
        else:
            genotypes = draw_genotypes(space, self.count, self.seed)
            networks = train_networks(
                genotypes, network, data, retrain, trainer, folder / "trained", self.seed
            )
            members = [with_normalization(alone, data.data) for alone in networks]
        batches = pixel_batches(data.data, self.images)
        rounds = self._rounds([member.to(accelerator) for member in members], batches, folder / ROUNDS_FILE)
        return self._findings(rounds, sum(len(y) for _, y in batches), data.name)

    def _rounds(
        self, members: Sequence[nn.Module], batches: Sequence[Batch], path: Path
    ) -> dict[str, Tensor]:
        """Return attack and defense accuracies, {attack: (members, 2)}; compute those not in the file."""
        done = read_records(path)
        for name, attack in {"none": NoAttack(), **self.attacks}.items():
            for number in range(len(members)):
                key = f"{name}/{number + 1}"
                if key in done:
                    continue
                torch.manual_seed(self.seed)
                done[key] = defense_round(members, number, batches, attack)
                attacked, defended = done[key]
                print(
                    f"{name}, member {number + 1}: {attacked:.1%} alone, {defended:.1%} together", flush=True
                )
                write_whole(path, json_text(done, 2) + "\n")
        return {
            name: torch.tensor([done[f"{name}/{number + 1}"] for number in range(len(members))])
            for name in ("none", *self.attacks)
        }

    def _findings(self, rounds: Mapping[str, Tensor], images: int, data: str) -> Findings:
        columns = ["attack", "attack accuracy", "± attack", "defense accuracy", "± defense"]
        rows: list[list[str | float]] = []
        numbers: dict[str, float] = {}
        for name, found in rounds.items():
            mean, deviation = found.mean(dim=0).tolist(), found.std(dim=0).tolist()
            rows.append([name, mean[0], deviation[0], mean[1], deviation[1]])
            numbers |= {f"{name}/attack_accuracy": mean[0], f"{name}/defense_accuracy": mean[1]}
        members = len(rounds["none"])
        title = f"One of {members} members attacked, all defending: {images:,} test images of {data}"
        note = f"Mean ± standard deviation over {members} rounds, in each another member; none: clean images"
        return Findings([Table("defense", title, columns, rows, note)], {"defense": _figure(rounds)}, numbers)


class NoAttack(Attack):
    """Leave the images unchanged, for the accuracies on clean images."""

    def __call__(self, network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return x


def _figure(rounds: Mapping[str, Tensor]) -> Figure:
    """Draw the accuracies of the attacked member and of the ensemble, with a point for each round."""
    figure = Figure(figsize=(1.2 + 1.1 * len(rounds), 3.0), layout="constrained")
    axes = figure.subplots()
    tidy(axes)
    for side, (label, color) in enumerate(zip(("attacked member", "ensemble"), COLORS[1::-1], strict=True)):
        places = [number + 0.4 * side - 0.2 for number in range(len(rounds))]
        means = [100 * float(found[:, side].mean()) for found in rounds.values()]
        axes.bar(places, means, width=0.38, color=color, label=label)
        for place, found in zip(places, rounds.values(), strict=True):
            values = (100 * found[:, side]).tolist()
            axes.plot([place] * len(values), values, "o", color=INK, markersize=2.5, alpha=0.7)
    axes.set_xticks(range(len(rounds)), list(rounds))
    label_axes(axes, "", "accuracy (%)")
    legend_above(axes, 2)
    return figure


def with_normalization(network: nn.Module, data: ImageData) -> nn.Module:
    """Return the network for pixels from 0 to 1."""
    return nn.Sequential(Normalize(data.mean, data.std), network).eval()
