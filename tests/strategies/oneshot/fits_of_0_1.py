"""Twenty steps of every one-shot strategy of version 0.1, in float64: `fits_of_0_1.py FILE` records them.

It names nothing but what version 0.1 and its successors both have, so that the record beside it
(`fits_of_0_1.json`) is that version's own: it was written by running this file with version 0.1 installed.
"""

import hashlib
import json
import sys
import warnings
from pathlib import Path

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from nas_lightning.spaces import DartsSpace, Mlp, NasBench1Shot1, NasBench201
from nas_lightning.strategies import Darts, FairDarts, Gaea, Gdas, PCDarts, PRDarts, RandomWS

try:
    from nas_lightning.strategies import ActivationSearch
except ImportError:  # it stood elsewhere in version 0.1
    from nas_lightning.strategies.activation_search import ActivationSearch

EPOCHS, BATCHES = 5, 4
CELL, DARTS = {"channels": 4, "cells": 1}, {"channels": 4, "cells": 3, "stem_multiplier": 1}
FAST = {"lr": 0.02, "arch_lr": 0.01}
SEARCHES = {
    "darts": (Darts, NasBench201(), CELL, FAST),
    "darts in darts": (Darts, DartsSpace(nodes=2), DARTS, FAST),
    "darts, second order": (Darts, NasBench201(), CELL, {**FAST, "order": 2}),
    "darts, second order, clipped": (Darts, NasBench201(), CELL, {**FAST, "order": 2, "clip": 0.05}),
    "darts, warm-up": (Darts, NasBench201(), CELL, {**FAST, "warmup_epochs": 2}),
    "darts, accumulated": (Darts, NasBench201(), CELL, {**FAST, "accumulate_grad_batches": 3}),
    "pr_darts": (PRDarts, NasBench201(), CELL, {**FAST, "tau_start": 10.0}),
    "pr_darts in darts": (PRDarts, DartsSpace(nodes=2), DARTS, {**FAST, "tau_start": 1.0}),
    "pr_darts, authors' code": (
        *(PRDarts, DartsSpace(nodes=2), DARTS),
        {**FAST, "tau_start": 1.0, "pooling_group": True, "path_sum": True, "threshold": 0.2},
    ),
    "gdas": (Gdas, NasBench201(), CELL, {**FAST, "seed": 4}),
    "gdas in darts": (Gdas, DartsSpace(nodes=2), DARTS, {**FAST, "tau_start": 4.0}),
    "gdas in nasbench1shot1": (Gdas, NasBench1Shot1(1), {"channels": 2, "cells": 1}, FAST),
    "pc_darts": (PCDarts, NasBench201(), {**CELL, "partial": 4}, FAST),
    "pc_darts in darts": (PCDarts, DartsSpace(nodes=2), {**DARTS, "partial": 2}, FAST),
    "gaea": (Gaea, NasBench201(), CELL, FAST),
    "gaea, single level": (Gaea, NasBench201(), CELL, {**FAST, "single_level": True}),
    "fair_darts": (FairDarts, NasBench201(), CELL, FAST),
    "fair_darts in darts": (FairDarts, DartsSpace(nodes=2), DARTS, {**FAST, "zero_one": 3.0}),
    "activation_search": (ActivationSearch, Mlp(layers=4), {"width": 8}, {**FAST, "arch_lr": 0.2}),
    "random_ws": (RandomWS, NasBench201(), CELL, {"lr": 0.1, "candidates": 10}),
    "random_ws in mlp": (RandomWS, Mlp(layers=3), {"width": 8}, {"lr": 0.1, "candidates": 4}),
}
PERTURBED = ("darts", "gdas in darts")
"""From the ends of these a genotype is derived by perturbation, too."""


class Images:
    """Four batches for each side, of numbers that every processor has alike; labels go by brightness."""

    def __init__(self):
        draw = torch.Generator().manual_seed(5)
        self.sides = {side: [images(draw) for _ in range(BATCHES)] for side in ("train", "valid")}

    def loader(self):
        both = zip(self.sides["train"], self.sides["valid"], strict=True)
        batches = [{"train": train, "valid": valid} for train, valid in both]
        return DataLoader(batches, batch_size=None, shuffle=False)

    def train_batches(self, count):
        return self.sides["train"][:count]

    def valid_batches(self, count):
        return self.sides["valid"][:count]


def images(draw):
    """A batch of 4 images of 8 × 8 pixels."""
    x = torch.rand(4, 1, 8, 8, generator=draw, dtype=torch.float64) - 0.5
    return x, x.mean(dim=(1, 2, 3)).argsort().argsort() % 3


def start(parameters, size):
    """Fill them evenly: normal numbers are rounded otherwise on other processors."""
    draw = torch.Generator().manual_seed(7)
    for parameter in parameters:
        fan_in = parameter[0].numel() if parameter.dim() > 2 else 1
        bound = size / fan_in**0.5
        even = torch.rand(parameter.shape, generator=draw, dtype=torch.float64)
        parameter.data = bound * (2 * even - 1)


def fitted(name):
    """The strategy of that name after its steps, and its data."""
    kind, space, size, settings = SEARCHES[name]
    data = Images()
    supernet = space.supernet(in_channels=1, num_classes=3, **size)
    parts = [space, supernet, data] if kind is RandomWS else [space, supernet]
    strategy = kind(*parts, **settings).double()
    start(strategy.supernet.parameters(), 1.7)
    if kind not in (RandomWS, Gaea, ActivationSearch):  # whose parameters start at constants
        start([p for key, p in strategy.named_parameters() if key.startswith("arch.")], 1e-3)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        precision="64-true",
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        **quiet,
    )
    trainer.fit(strategy, data.loader())
    accumulated = settings.get("accumulate_grad_batches", 1)
    assert trainer.global_step == EPOCHS * -(-BATCHES // accumulated)
    return strategy, data


def record(name, perturbation):
    """What the fit came to: small enough to be stored, and a digest of all its bits."""
    strategy, data = fitted(name)
    state = {key: value for key, value in strategy.state_dict().items() if not key.endswith("_scores")}
    weights = torch.cat([value.flatten() for key, value in sorted(state.items()) if "supernet" in key])
    logged = strategy.trainer.callback_metrics
    found = {
        "arch": {key: value.tolist() for key, value in sorted(state.items()) if key.startswith("arch.")},
        "weights": [float(weights.sum()), float(weights.square().sum())],
        "metrics": {key: float(value) for key, value in sorted(logged.items()) if "weights/" not in key},
        "genotype": strategy.space.notation(strategy.derive()[0]),
        "generator": digest(strategy.generator.get_state()),
        "digest": digest(*(value for _, value in sorted(state.items()))),
    }
    if name in PERTURBED:
        (genotype,) = perturbation(valid_batches=1, tune_batches=1, tune_lr=0.01, seed=2)(strategy, data)
        tuned = torch.cat([weight.flatten() for weight in strategy.supernet.parameters()])
        found["perturbed"] = [strategy.space.notation(genotype), float(tuned.detach().square().sum())]
    return found


def digest(*tensors):
    """A name for these bits."""
    bits = hashlib.sha256()
    for tensor in tensors:
        bits.update(tensor.detach().contiguous().numpy().tobytes())
    return bits.hexdigest()[:16]


if __name__ == "__main__":
    from nas_lightning.analysis.perturbation import Perturbation

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {name: record(name, Perturbation) for name in SEARCHES}
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")
