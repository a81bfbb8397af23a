"""Whether ReinMax' estimate points where the exact gradient does, in a supernet that it has trained.

    python -m reproductions.measurements.reinmax_gradient --data FOLDER [--epochs 2] [--draws 24]

For operations that are drawn on all edges, the exact gradient for the parameters of one edge is

    ∂E[L]/∂β_j = p_j (L_j − Σ_k p_k L_k),   p = softmax(β),

with L_k the loss with operation k on this edge: five passes an edge. The table has, edge by edge, the cosine
between the mean of the estimates and that of the exact gradients, both norms, and the deviation of a single
estimate. The last line is the exact gradient of each operation, which descent moves against.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pytorch_lightning as pl
import torch
from torch import Tensor

from benchmarks.timing import quiet_trainer
from nas_lightning.data import Cifar10, SearchData
from nas_lightning.objectives.inherited import Batch
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import OneShot, ReinMax
from nas_lightning.strategies.one_shot.parts import RelaxedWeights


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--draws", type=int, default=24)
    parser.add_argument("--images", type=int, default=4000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    pl.seed_everything(0, verbose=False)
    data = SearchData(Cifar10(root=str(options.data / "cifar10"), batch_size=32, subset=options.images))
    space = NasBench201()
    supernet = space.supernet(in_channels=3, num_classes=10, channels=8, cells=1)
    search = OneShot(space, supernet, sampler=ReinMax(), arch_lr=6e-3)
    quiet_trainer(options.epochs).fit(search, data)
    report(*gradients_of_draws(search, next(iter(data.valid_batches(1))), options.draws), space.group.ops)


def gradients_of_draws(search: OneShot, batch: Batch, draws: int) -> tuple[Tensor, Tensor]:
    """Return the estimate and the exact gradient of each draw, both (draws, edges, ops)."""
    found = [gradients_of_draw(search, batch) for _ in range(draws)]
    return torch.stack([estimate for estimate, _ in found]), torch.stack([exact for _, exact in found])


def gradients_of_draw(search: OneShot, batch: Batch) -> tuple[Tensor, Tensor]:
    relaxed = search.relax()
    loss = search.loss_and_logits(batch, relaxed)[0]
    (estimate,) = torch.autograd.grad(loss, [search.arch["cell"]])
    return estimate, exact_gradient(search, batch, relaxed.weights["cell"].detach())


@torch.no_grad()
def exact_gradient(search: OneShot, batch: Batch, drawn: Tensor) -> Tensor:
    """Return the exact gradient of every edge, given the drawn operations of the others, (edges, ops)."""
    probability = torch.softmax(search.arch["cell"], dim=-1)
    losses = torch.zeros_like(drawn)
    for edge, op in torch.cartesian_prod(*(torch.arange(size) for size in drawn.shape)).tolist():
        weights = drawn.clone()
        weights[edge] = torch.eye(drawn.shape[1])[op]
        losses[edge, op] = search.loss_and_logits(batch, RelaxedWeights({"cell": weights}))[0]
    return probability * (losses - (probability * losses).sum(dim=-1, keepdim=True))


def report(estimates: Tensor, exacts: Tensor, ops: tuple[str, ...]) -> None:
    mean, exact = estimates.mean(dim=0), exacts.mean(dim=0)
    cosines = torch.cosine_similarity(mean, exact, dim=-1)
    single = estimates.var(dim=0).sum(dim=-1).sqrt()
    print("\n| edge | cosine | norm of the estimate | exact | deviation of one estimate |")
    print("|---|---|---|---|---|")
    for edge, cosine in enumerate(cosines.tolist()):
        norms = f"{float(mean[edge].norm()):.4f} | {float(exact[edge].norm()):.4f}"
        print(f"| {edge} | {cosine:.2f} | {norms} | {float(single[edge]):.4f} |")
    means = exact.mean(dim=0).tolist()
    print("\n" + ", ".join(f"{op} {value:+.4f}" for op, value in zip(ops, means, strict=True)))


if __name__ == "__main__":
    main()
