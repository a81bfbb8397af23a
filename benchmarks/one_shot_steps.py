"""Costs of the steps of each one-shot strategy, relative to DARTS.

    python -m benchmarks.one_shot_steps [--rounds 5] [--batch 16]

In a supernet of NAS-Bench-201 with 16 channels and one cell a stage, 32×32 images. A step of sampled paths
costs what its draw costs: the mean over eight draws, the same in every round. Each step is compared with its
lower bound: one pass of the computed operations for each trained path, with given weights. A single level's
architecture step is its weights' step, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch import nn

from benchmarks.timing import medians
from nas_lightning.data import Fake, SearchData
from nas_lightning.options import config_folder, groups
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import OneShot
from nas_lightning.strategies.one_shot.parts import Epoch, RelaxedWeights, SearchBatch
from nas_lightning.training.gradients import constant, gradients

DRAWS = 8
KINDS = {
    "weights": "weights",
    "least": "weights",
    "architecture": "architecture",
    "least of it": "architecture",
}
"""What is measured, and the step of DARTS that it is a share of."""
EXTRA = {
    "sdarts, adversarial": ("sdarts", "perturbation=adversarial"),
    "gaea, single level": ("gaea", "arch_step=single_level"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    torch.manual_seed(0)
    space = NasBench201()
    supernets = {
        k: space.supernet(in_channels=3, num_classes=10, channels=16, cells=1, partial=k) for k in (1, 4)
    }
    x, y = torch.randn(options.batch, 3, 32, 32), torch.randint(10, (options.batch,))
    batch = {"train": (x, y), "valid": (x, y)}
    works: dict[str, Callable[[], object]] = {}
    sampled: list[str] = []
    for name, words in {**{name: (name,) for name in groups()["strategy"]}, **EXTRA}.items():
        search = compose_strategy(space, supernets, *words)
        if search is not None:
            works |= {f"{name} {kind}": work for kind, work in works_of(search, batch).items()}
            if search.sampler.varies:
                sampled.append(name)
    costs = medians(works, options.rounds)
    for name in sampled:
        for kind in KINDS:
            costs[f"{name} {kind}"] = costs.get(f"{name} {kind}", 0.0) / DRAWS
    print(f"{'share of the step of darts':28s}" + "".join(f"{kind:>14s}" for kind in KINDS))
    for name in [key.removesuffix(" weights") for key in costs if key.endswith(" weights")]:
        print(f"{name:28s}" + "".join(f"{share(costs, name, kind):>14s}" for kind in KINDS))


def compose_strategy(space: NasBench201, supernets: dict, name: str, *words: str) -> OneShot | None:
    """Return the strategy of a yaml, if it is a one-shot strategy."""
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("search", [f"strategy={name}", "space=nasbench201", "run=.", *words])
    if not config.strategy._target_.endswith(".OneShot"):
        return None
    supernet = supernets[config.supernet.partial]
    search = instantiate(config.strategy, _partial_=True)(space, supernet, SearchData(Fake()))
    search.trainer = None
    search.epoch = Epoch(1, of=2)  # terms that grow from zero are there
    return search


def works_of(search: OneShot, batch: SearchBatch) -> dict[str, Callable[[], object]]:
    """Return the steps of a search and their lower bounds, for all draws."""
    paths = [[detach_weights(path) for path in search.paths()] for _ in draws(search)]
    works: dict[str, Callable[[], object]] = {
        "weights": lambda: [weight_step(search, batch) for _ in draws(search)],
        "least": lambda: [weight_passes(search, batch, drawn) for drawn in paths],
    }
    if search.arch_step is not None:
        weights = [detach_weights(search.relax()) for _ in draws(search)]
        works["architecture"] = lambda: [search.arch_gradients(batch) for _ in draws(search)]
        works["least of it"] = lambda: [arch_pass(search, batch, drawn) for drawn in weights]
    return works


def draws(search: OneShot) -> range:
    """Return draws of paths, the same in each call."""
    search.generator.manual_seed(1)
    return range(DRAWS if search.sampler.varies else 1)


def weight_step(search: OneShot, batch: SearchBatch) -> None:
    """Compute the gradients of a weight step."""
    with torch.no_grad():
        paths = [search.perturb(relaxed, batch) for relaxed in search.paths()]
    for relaxed in paths:
        search.weight_gradients(batch, relaxed)


def detach_weights(relaxed: RelaxedWeights) -> RelaxedWeights:
    """Return detached architecture weights."""
    return RelaxedWeights({name: w.detach() for name, w in relaxed.weights.items()}, relaxed.active)


def weight_passes(search: OneShot, batch: SearchBatch, paths: Sequence[RelaxedWeights]) -> None:
    """Compute ∇_w L_train once for each path."""
    for path in paths:
        gradients(search.loss_and_logits(batch["train"], path)[0], search.weight_list)


def arch_pass(search: OneShot, batch: SearchBatch, relaxed: RelaxedWeights) -> None:
    """Compute the gradient of L_val for architecture weights; on a single level, for all weights."""
    step = search.arch_step
    joint = [] if step is None or step.validates else search.weight_list
    moving = {name: nn.Parameter(w) for name, w in relaxed.weights.items()}
    with constant([] if joint else search.weight_list):
        loss = search.loss_and_logits(batch["valid"], RelaxedWeights(moving, relaxed.active))[0]
        gradients(loss, [*moving.values(), *joint])


def share(costs: dict[str, float], name: str, kind: str) -> str:
    """Return the cost of a step relative to DARTS."""
    cost = costs.get(f"{name} {kind}")
    return f"{cost / costs[f'darts {KINDS[kind]}']:.2f}" if cost else "–"


if __name__ == "__main__":
    main()
