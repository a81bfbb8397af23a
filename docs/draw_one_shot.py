"""Draws docs/images/one_shot.png: the weights of one edge over a search, under each part that makes them.

python -m docs.draw_one_shot

Every panel has the same parameters, which move away from zero, and the same random numbers; it shows what the
supernet is called with in an architecture step, or, for a perturbation, in a step of its weights.
"""

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nas_lightning.data import Fake, SearchData
from nas_lightning.plots import save
from nas_lightning.plots.style import kind, tidy
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import OneShot
from nas_lightning.strategies.one_shot.parts import Epoch
from nas_lightning.strategies.one_shot.relaxations import uniform_noise
from tests.strategies.one_shot.parts_by_name import options, part

PICTURE = Path(__file__).parent / "images" / "one_shot"
STEPS, COLUMNS = 60, 4
END = torch.tensor([-1.0, 0.5, 0.0, 2.0, -0.5])  # of the parameters of an edge
SPACE = NasBench201()


def weights(panel: str, name: str) -> torch.Tensor:
    """The weights of the first edge in each step: (steps, ops)."""
    chosen = {} if panel == "sampler" else {"sampler": part("sampler", "softmax")}
    chosen[panel] = part(panel, name)
    if not chosen["sampler"].learns:
        chosen["selection"] = part("selection", "candidates")
    supernet = SPACE.supernet(in_channels=1, num_classes=2, channels=4, cells=1)
    search = OneShot(SPACE, supernet, SearchData(Fake()), **chosen)
    shown = []
    for step in range(STEPS):
        search.epoch = Epoch(step, STEPS)
        with torch.no_grad():
            if search.arch_list:
                beta = END * step / STEPS
                search.arch["cell"].copy_((beta.softmax(0) if name == "simplex" else beta).expand(6, 5))
            relaxed = search.relax()
        matrix = {"cell": relaxed.weights["cell"].detach().clone()}
        if search.perturbation is not None:
            noise = {"cell": uniform_noise(matrix["cell"], search.generator)}
            toward = {"cell": -END.expand(6, 5)}  # the slope of a loss that likes what leads
            matrix = search.perturbation.apply(
                matrix, noise, search.epoch, search.sampler, lambda w, slope=toward: slope
            )
        shown.append(matrix["cell"][0])
    return torch.stack(shown)


def draw(axes: Axes, panel: str, name: str) -> None:
    """One panel: lines, or for sampled paths a row of dots for each operation, as large as its weights."""
    dots = panel == "sampler" and part(panel, name).varies
    for number, (op, line) in enumerate(zip(SPACE.group.ops, weights(panel, name).T.tolist(), strict=True)):
        if dots:
            sizes = [7 * weight for weight in line]
            axes.scatter(range(STEPS), [-number] * STEPS, s=sizes, color=kind(op).color, linewidths=0)
        else:
            dash = "--" if op == "nor_conv_1x1" else "-"
            axes.plot(range(STEPS), line, color=kind(op).color, label=op, linewidth=1.0, linestyle=dash)
    axes.set_title(f"{panel}={name}", fontsize=8)
    axes.set_xlim(0, STEPS - 1)
    tidy(axes)
    if dots:
        axes.set_yticks([])


def figure() -> Figure:
    """All panels."""
    panels = [("sampler", name) for name in options("sampler") if name != "clipped_skips"]
    panels += [("auxiliary_skip", "skip"), ("perturbation", "random"), ("perturbation", "adversarial")]
    rows = -(-len(panels) // COLUMNS)
    picture = Figure(figsize=(8.0, 1.55 * rows + 0.4), layout="constrained")
    places = picture.subplots(rows, COLUMNS, sharex=True)
    for axes, (panel, name) in zip(places.flat, panels, strict=False):
        draw(axes, panel, name)
    for axes in places.flat[len(panels) :]:
        axes.set_axis_off()
    handles, labels = places.flat[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=7, frameon=False)
    return picture


if __name__ == "__main__":
    torch.manual_seed(0)
    save(figure(), PICTURE)[0].unlink()  # a megabyte of dots
