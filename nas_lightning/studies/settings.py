"""Settings that metrics are evaluated in: one thing differs from the main setting, the others stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from nas_lightning.data import ImageData, SearchData
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.passes.initialise import Scheme
from nas_lightning.metrics.passes.shared import Batch
from nas_lightning.studies.pools import MAIN, Setting

RANDOM = ("random_labels", "gaussian_inputs")


@dataclass(frozen=True)
class Variation:
    """One thing that varies.

    Args:
        title: what it is.
        pools: {value: name of the pool}; the main setting's pool is `main`.
        settings: {name of the pool: setting}, without the main one.
        metric_at: where the metric stays while κ varies.
        kappa_at: where κ stays while the metric varies; None: they vary together.

    >>> Variation("width", {"4": "channels_4", "8": "main"}, {}, metric_at="8", kappa_at="4").pairs()
    [('4', None), ('4', '4'), ('8', None), ('8', '4'), ('8', '8')]
    """

    title: str
    pools: Mapping[str, str]
    settings: Mapping[str, Setting]
    metric_at: str
    kappa_at: str | None

    def pairs(self) -> list[tuple[str, str | None]]:
        """Values for the metric and for κ; None where the metric is alone."""
        if self.kappa_at is None:
            return [pair for value in self.pools for pair in ((value, None), (value, value))]
        rows = [pair for value in self.pools for pair in ((value, None), (value, self.kappa_at))]
        return [*rows, *((self.metric_at, value) for value in self.pools if value != self.kappa_at)]


def initialisations(main: Setting, schemes: Sequence[Scheme]) -> Variation:
    """Each scheme; the weights of metric and κ are the same."""
    others = [scheme for scheme in schemes if scheme != main.scheme]
    pools: dict[str, str] = {main.scheme: MAIN, **{scheme: f"scheme_{scheme}" for scheme in others}}
    settings = {f"scheme_{scheme}": Setting(main.network, main.batch, scheme) for scheme in others}
    return Variation("initialisation", pools, settings, main.scheme, None)


def batch_sizes(main: Setting, data: SearchData, sizes: Sequence[int]) -> Variation:
    """The first so many images; the main batch begins with the smaller ones, the larger begin with it."""
    base = len(main.batch[1])
    batches = data.train_batches(-(-max([base, *sizes]) // base))  # of these, the first is the main one
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    pools = {str(size): MAIN if size == base else f"batch_{size}" for size in sorted({base, *sizes})}
    settings = {
        f"batch_{size}": Setting(main.network, (x[:size], y[:size]), main.scheme)
        for size in sizes
        if size != base
    }
    return Variation("batch size", pools, settings, str(base), str(base))


def widths(
    main: Setting, network: Callable[..., nn.Module], channels: Sequence[int], example: Genotype
) -> Variation:
    """The network with so many initial channels; κ stays at the fewest, the metric at the most."""
    pools, settings = {}, {}
    for width in sorted(channels):
        wide = partial(network, channels=width)
        same = str(wide(example)) == str(network(example))
        pools[str(width)] = MAIN if same else f"channels_{width}"
        if not same:
            settings[f"channels_{width}"] = Setting(wide, main.batch, main.scheme)
    labels = list(pools) or [""]
    return Variation("initial channels", pools, settings, labels[-1], labels[0])


def agnostic(main: Setting, classes: int, seed: int) -> dict[str, Setting]:
    """Random labels on the true images, and Gaussian inputs with the true labels."""
    (x, y), random = main.batch, torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, y.shape, generator=random)
    noise = torch.randn(x.shape, generator=random)
    batches: tuple[Batch, Batch] = ((x, labels), (noise, y))
    return {
        name: Setting(main.network, batch, main.scheme) for name, batch in zip(RANDOM, batches, strict=True)
    }


def data_sets(
    main: Setting, network: Callable[..., nn.Module], others: Mapping[str, ImageData]
) -> dict[str, Setting]:
    """The first batch of each data set, and networks for its images and classes."""
    found = {}
    for name, images in others.items():
        sized = partial(network, in_channels=images.image[0], num_classes=images.num_classes)
        found[f"data_{name}"] = Setting(sized, SearchData(images).train_batches(1)[0], main.scheme)
    return found
