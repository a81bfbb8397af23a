"""Trainings without regularization, with results of each epoch (Y. Shu's thesis, 2022, A.1.3 and A.1.4).

SGD with momentum 0.9, weight decay 3e-4, and a cosine from the learning rate to 0; no augmentation and no
clipping.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from nas_lightning.data import SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.pool import PoolFile
from nas_lightning.objectives.counts import count_parameters
from nas_lightning.objectives.short_training import outputs_of, score_outputs, train_pass
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.studies.scoring import Values
from nas_lightning.tasks import task_of
from nas_lightning.training.optimizers import build_optimizer, build_scheduler
from nas_lightning.utils.progress import follow
from nas_lightning.utils.randomness import seed_of_name


class Case(NamedTuple):
    """An architecture to train.

    Args:
        network: its name, which the initial weights depend on.
        genotype: the architecture.
        lr: initial learning rate.
    """

    network: str
    genotype: Genotype
    lr: float

    @property
    def name(self) -> str:
        """The name of its line in the file."""
        return f"{self.network}, lr {self.lr:g}"


class Curve(NamedTuple):
    """Results after each epoch, each (epochs,); NaN after a divergence.

    Args:
        train_loss: mean loss over the epoch's steps.
        loss: loss on held-out images.
        score: the task's score on held-out images in percent; accuracy for classes.
    """

    train_loss: Values
    loss: Values
    score: Values


DIVERGED = (math.nan,) * len(Curve._fields)


def train_cases(
    cases: Sequence[Case], network: NetworkFactory, data: SearchData, path: Path, *, epochs: int, seed: int
) -> dict[str, Curve]:
    """Return the curves by name; train and append those that are not in the file."""
    columns = [f"{kind} {epoch + 1}" for kind in Curve._fields for epoch in range(epochs)]
    settings = {"seed": seed, "images": [data.train.images, data.valid.images], "batch": data.batch_size}
    settings |= {"parameters": count_parameters(network(cases[0].genotype))}
    file = PoolFile(path, columns, settings)
    rows = file.read()
    left = [case for case in cases if case.name not in rows]
    for case in follow(left, "trainings", total=len(cases), done=len(cases) - len(left)):
        with torch.random.fork_rng():
            torch.manual_seed(seed_of_name(seed, case.network))
            curve = train_curve(network(case.genotype), data, lr=case.lr, epochs=epochs, seed=seed)
        rows[case.name] = dict(zip(columns, np.concatenate(curve).tolist(), strict=True))
        file.append(case.name, rows[case.name])
    return {case.name: _curve(rows[case.name], columns) for case in cases}


def _curve(row: Mapping[str, float], columns: Iterable[str]) -> Curve:
    return Curve(*np.split(np.array([row[column] for column in columns]), len(Curve._fields)))


def train_curve(network: nn.Module, data: SearchData, *, lr: float, epochs: int, seed: int) -> Curve:
    """Train the network in place on the weights' side; stop if it diverges."""
    weights = list(network.parameters())
    optimizer = build_optimizer(weights, "momentum", lr=lr, weight_decay=3e-4)
    schedule = build_scheduler(optimizer, "cosine", epochs=epochs, lr_min=0.0)
    task, points = task_of(data), list[tuple[float, ...]]()
    for epoch in range(epochs):
        network.train()
        schedule.step(epoch)
        batches = data.train.shuffled_pass(epoch, data.batch_size, seed)
        losses = train_pass(network, batches, optimizer, task)
        point = (float(torch.stack(losses).mean()), *judge(network, data))
        if not np.isfinite(point).all():
            break
        points.append(point)
    points += [DIVERGED] * (epochs - len(points))
    return Curve(*np.array(points).T)


def judge(network: nn.Module, data: SearchData) -> tuple[float, float]:
    """Return the mean loss and the task's score in percent on the images of the architecture's side."""
    task, outputs = task_of(data), outputs_of(network, data.valid.whole_pass())
    losses = [float(task.evaluation_loss(z, y)) * len(y) for z, y in outputs]
    return sum(losses) / sum(len(y) for _, y in outputs), score_outputs(task, outputs)
