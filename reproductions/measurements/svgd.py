"""The question of figure 5.2 of NESBS (Shu 2022, thesis): what δ does to the particles of SVGD-RD.

    python -m reproductions.measurements.svgd [--seeds 5]

The target is that of the figure, an even mixture of two Gaussians with means (−1, 0) and (0, 1) and variances
(0.25, 0.5); 15 particles, 1,000 steps of 0.1 with momentum 0.9, an RBF kernel. Draws the first seed in
docs/images/svgd_rd.png, and prints the mean distance of two particles for every δ last, over the seeds.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from nas_lightning.plots import save
from nas_lightning.plots.style import GRAY, INK, tidy
from nas_lightning.runs.facts import mean_with_deviation
from nas_lightning.strategies.nesbs.svgd import GaussianMixture, svgd_rd

DELTAS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0)
PARTICLES = 15
BLUE = "#0072b2"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--figure", type=Path, default=Path("docs/images/svgd_rd"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    target = GaussianMixture(
        torch.tensor([0.5, 0.5], dtype=torch.float64),
        torch.tensor([[-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64),
        torch.tensor([[0.25, 0.5], [0.25, 0.5]], dtype=torch.float64),
    )
    found = {delta: [run(target, delta, seed) for seed in range(options.seeds)] for delta in DELTAS}
    svg, _ = save(draw(target, {delta: runs[0] for delta, runs in found.items()}), options.figure)
    svg.unlink()  # the documentation shows the other
    print("| δ | mean distance of two particles | mean log density | at the first mode |")
    print("|---|---|---|---|")
    for delta, runs in found.items():
        distances = [float(torch.pdist(particles).mean()) for particles in runs]
        densities = [float(target.log_density(particles).mean()) for particles in runs]
        at_first = [first_mode(target, particles) for particles in runs]
        cells = [
            mean_with_deviation(distances, 2),
            mean_with_deviation(densities, 2),
            f"{statistics.mean(at_first):.1f} of {PARTICLES}",
        ]
        print(f"| {delta:g} | {' | '.join(cells)} |")


def run(target: GaussianMixture, delta: float, seed: int) -> Tensor:
    """Return the final particles, (15, 2)."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(PARTICLES, 2, dtype=torch.float64, generator=generator)
    return svgd_rd(start, target.score, delta=delta)


def first_mode(target: GaussianMixture, particles: Tensor) -> int:
    """Return the number of particles nearer to the first mean."""
    return int((torch.cdist(particles, target.means).argmin(dim=1) == 0).sum())


def draw(target: GaussianMixture, found: dict[float, Tensor]) -> Figure:
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    axis = torch.linspace(-3.5, 3.5, 141, dtype=torch.float64)
    x, y = torch.meshgrid(axis - 0.5, axis + 0.5, indexing="xy")
    density = target.log_density(torch.stack([x, y], dim=2).view(-1, 2)).exp().view(x.shape)
    for axes, (delta, particles) in zip(panels.flat, found.items(), strict=True):
        axes.contour(x, y, density, levels=8, colors=GRAY, linewidths=0.7)
        axes.scatter(*particles.T, s=18, color=BLUE, edgecolor="white", linewidth=0.5, zorder=3)
        axes.set_title(f"δ = {delta:g}".replace("-", "−"), fontsize=10, color=INK)
        axes.set_aspect("equal")
        axes.set(xlim=(-3.2, 2.2), ylim=(-2.2, 3.2))
        tidy(axes)
        axes.grid(False)
    return figure


if __name__ == "__main__":
    main()
