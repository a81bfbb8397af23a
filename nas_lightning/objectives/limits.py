"""Limits of a search: costs of the network that it finds, and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated

import torch
from torch import nn

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.counts import count_macs, count_parameters
from nas_lightning.objectives.memory import inference_memory, memory_and_macs
from nas_lightning.validation import PositiveFloat, above, at_most, checked

OF_NETWORKS = ("params", "macs", "latency_ms", "memory_mb")


@checked
@dataclass(frozen=True)
class Limits:
    """Limits of a search. Costs are those of the network that is trained afterwards.

    Args:
        params: trainable parameters, with the auxiliary head if it is trained with one.
        macs: multiply-adds for one image.
        latency_ms: milliseconds on `device`; to a prediction its standard deviation is added.
        memory_mb: peak of a forward pass of one image, weights included, in 10⁶ bytes.
        device: a table of measured latencies; `table.csv:phone` is its column `phone`.
        minutes: time limit of the search.

    >>> Limits(params=1e6, macs=5e7).of_networks
    {'params': 1000000.0, 'macs': 50000000.0}
    >>> Limits(latency_ms=2.0)
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: A latency needs a device: pass limits.device=my_laptop.csv (in \
limits.device)
    """

    params: PositiveFloat | None = None
    macs: PositiveFloat | None = None
    latency_ms: PositiveFloat | None = None
    memory_mb: PositiveFloat | None = None
    device: str | None = None
    minutes: Annotated[float, above(0), at_most(1e7)] | None = None

    def __post_init__(self) -> None:
        if self.latency_ms is not None and self.device is None:
            raise InputError(
                "A latency needs a device: pass limits.device=my_laptop.csv", where="limits.device"
            )

    @property
    def of_networks(self) -> dict[str, float]:
        """The limits of costs, by name."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: named[name] for name in OF_NETWORKS if named[name] is not None}


class NetworkCosts:
    """Maps a genotype to the costs of its network, computed on the meta device if possible.

    Args:
        network: maps a genotype to its network.
        image: (c, h, w).
        names: names of the costs.
        latency: maps a genotype to milliseconds.

    >>> from nas_lightning.spaces import NasBench201
    >>> space, sizes = NasBench201(), {"in_channels": 1, "num_classes": 10, "channels": 4, "cells": 1}
    >>> costs = NetworkCosts(lambda genotype: space.network(genotype, **sizes), (1, 8, 8), ["params"])
    >>> costs(space.parse("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"))
    {'params': 4822.0}
    """

    def __init__(
        self,
        network: Callable[[Genotype], nn.Module],
        image: tuple[int, int, int],
        names: list[str],
        latency: Callable[[Genotype], float] | None = None,
    ) -> None:
        self.network, self.image, self.names, self.latency = network, image, list(names), latency

    def __call__(self, genotype: Genotype) -> Mapping[str, float]:
        counted = [name for name in self.names if name != "latency_ms"]
        found = self._count(genotype, counted) if counted else {}
        if self.latency is not None and "latency_ms" in self.names:
            found["latency_ms"] = self.latency(genotype)
        return {name: found[name] for name in self.names}

    def _count(self, genotype: Genotype, names: list[str]) -> dict[str, float]:
        try:
            return self._count_on("meta", genotype, names)
        except Exception:  # a network that needs values
            return self._count_on("cpu", genotype, names)

    def _count_on(self, device: str, genotype: Genotype, names: list[str]) -> dict[str, float]:
        with torch.random.fork_rng(devices=[]), torch.device(device):
            network, x = self.network(genotype), torch.zeros(1, *self.image)
            found = {"params": float(count_parameters(network))}
        if {"macs", "memory_mb"} <= {*names}:
            memory, macs = memory_and_macs(network, x)
            return {**found, "macs": float(macs), "memory_mb": memory / 1e6}
        if "macs" in names:
            found["macs"] = float(count_macs(network, x))
        if "memory_mb" in names:
            found["memory_mb"] = inference_memory(network, x) / 1e6
        return found
