"""What the steps of each one-shot strategy cost, as shares of DARTS'.

    python -m nas_lightning.measure.one_shot_steps [--rounds 5] [--batch 16]

In a supernet of NAS-Bench-201 with 16 channels and one cell a stage, 32×32 images. A step of sampled paths
costs what its draw costs: the mean over eight draws, the same in every round. The least that a path can cost
is the row of `random_ws`; a single level's architecture step is its weights' step, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from hydra import compose, initialize_config_module
from hydra.utils import instantiate

from nas_lightning.data import Fake, SearchData
from nas_lightning.measure.timing import medians
from nas_lightning.options import groups
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import OneShot
from nas_lightning.strategies.oneshot.values import Epoch, SearchBatch

DRAWS = 8
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
            works[f"{name} weights"] = lambda s=search: [weight_step(s, batch) for _ in draws(s)]
            if search.parts.sampler.varies:
                sampled += [f"{name} weights", f"{name} architecture"]
            if search.parts.arch_step is not None:
                works[f"{name} architecture"] = lambda s=search: [s.arch_gradients(batch) for _ in draws(s)]
    costs = medians(works, options.rounds)
    for name in costs.keys() & sampled:
        costs[name] /= DRAWS
    print(f"{'share of the step of darts':32s} {'weights':>10s} {'architecture':>14s}")
    for name in [key.removesuffix(" weights") for key in costs if key.endswith(" weights")]:
        shares = [share(costs, name, kind) for kind in ("weights", "architecture")]
        print(f"{name:32s} {shares[0]:>10s} {shares[1]:>14s}")


def compose_strategy(space: NasBench201, supernets: dict, name: str, *words: str) -> OneShot | None:
    """The strategy of that yaml, if its parts are of one-shot search."""
    with initialize_config_module("nas_lightning.conf", version_base="1.3"):
        config = compose("search", [f"strategy={name}", "space=nasbench201", "run=.", *words])
    if not config.strategy._target_.endswith(".OneShot"):
        return None
    supernet = supernets[config.supernet.partial]
    search = instantiate(config.strategy, _partial_=True)(space, supernet, SearchData(Fake()))
    search.trainer = None
    search.epoch = Epoch(1, of=2)  # terms that grow from zero are there
    return search


def draws(search: OneShot) -> range:
    """As many draws as it takes, the same ones each time."""
    search.generator.manual_seed(1)
    return range(DRAWS if search.parts.sampler.varies else 1)


def weight_step(search: OneShot, batch: SearchBatch) -> None:
    """The gradients of a step of the weights."""
    with torch.no_grad():
        paths = [search.perturb(relaxed, batch) for relaxed in search.paths()]
    for relaxed in paths:
        search.weight_gradients(batch, relaxed)


def share(costs: dict[str, float], name: str, kind: str) -> str:
    """A step's cost over that of DARTS."""
    if f"{name} {kind}" not in costs:
        return "–"
    return f"{costs[f'{name} {kind}'] / costs[f'darts {kind}']:.2f}"


if __name__ == "__main__":
    main()
