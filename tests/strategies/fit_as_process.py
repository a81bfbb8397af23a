"""Fits searches, one after the other, as one of several processes.

    python -m tests.strategies.fit_as_process folder search …

Rank and world come from the environment, as torchrun sets it. A search is a strategy, a space and overrides,
separated by blanks, or `external_data FORM`; the result of the n-th is saved as `folder`/n_world_rank.
"""

import logging
import os
import sys
import warnings
from pathlib import Path

import torch

from tests.strategies.conftest import at_most, build_search, quiet_trainer, without_norms
from tests.strategies.fit_external_data import fit_both

BATCH = 8  # of all processes together


def fit(search: str, world: int):
    name, space, *overrides = search.split()
    sizes = ["dataset.train_size=48", f"dataset.batch_size={BATCH // world}"]
    strategy, data = build_search(name, space, *sizes, *overrides)
    without_norms(strategy)
    start = {name: p.detach().clone() for name, p in strategy.named_parameters()}
    options = {"strategy": "ddp", "devices": world} if world > 1 else {}
    trainer = quiet_trainer(at_most(2, name), precision="64-true", use_distributed_sampler=False, **options)
    trainer.fit(strategy, data)
    metrics = trainer.callback_metrics.items()
    return {
        "start": start,
        "weights": {name: p.detach() for name, p in strategy.named_parameters()},
        "scores": {name: matrix.detach() for name, matrix in strategy.scores().items()},
        "generator": strategy.generator.get_state(),
        "genotypes": [strategy.space.notation(genotype) for genotype in strategy.derive()],
        "metrics": {name: float(value) for name, value in metrics},
    }


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", ".*LeafSpec.*")
    warnings.filterwarnings("ignore", ".*returned `None`, this fit will run with no optimizer")
    # Lightning asks for `sync_dist` whenever a number is logged; ours are equal on all processes already
    warnings.filterwarnings("ignore", "It is recommended to use `self.log")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    folder, *searches = sys.argv[1:]
    for number, search in enumerate(searches):
        kind, _, form = search.partition(" ")
        if kind == "external_data":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = fit_both(form, world, Path(folder))
        else:
            found = fit(search, world)
        torch.save(found, Path(folder) / f"{number}_{world}_{rank}")
