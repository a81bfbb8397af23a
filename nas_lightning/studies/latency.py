"""Latencies of a space's networks on this machine, and how well a few of them predict the others.

Writes `device.csv` for searches with a limit: `limits.device=RUN/device.csv limits.latency_ms=2`.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.pool import PoolFile
from nas_lightning.models.latency import Conditions, Runtime, measure_networks
from nas_lightning.objectives.counts import cost
from nas_lightning.objectives.latency import (
    LEAST,
    Array,
    Clock,
    Features,
    LatencyModel,
    device_settings,
    medians,
    write_device,
)
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.base import SearchSpace, draw_distinct
from nas_lightning.spaces.network import NetworkFactory
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import spearman
from nas_lightning.utils.devices import CPU
from nas_lightning.utils.machine import Processes
from nas_lightning.utils.tables import Entry, Estimate, Table
from nas_lightning.validation import Seed, above, at_least, at_most, checked

FILE, TIMES = "device.csv", "times.csv"
NOTE = "ρ of Spearman; a measurement and its repetition are the medians of odd rounds and of even ones"


class Latency(Study):
    """Measure random networks of a space, and predict some of them from the others.

    Args:
        networks: number of networks that are measured.
        judged: number of them that are predicted from the rest; the file has all.
        runtime: `eager`; `compiled`, by `torch.compile`, which takes minutes per network; or `onnx`, by ONNX
            Runtime.
        threads: threads of a network.
        clock: `wall`; or `processor`, with one thread, on a machine that is busy.
        rounds: rounds in which all networks are measured in turn.
        least_ms: least duration of a network's calls in a round.
        device: name of the device in the file; None: that of the GPU or of the processor architecture.
        seed: seed of the networks and of the order.

    >>> Latency(networks=10, judged=8)
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: `judged` must be at most 7, so that 3 are left, got 8 (in study.judged)
    """

    @checked
    def __init__(
        self,
        *,
        networks: Annotated[int, at_least(2 + LEAST)] = 60,
        judged: Annotated[int, at_least(2)] = 20,
        runtime: Runtime = "eager",
        threads: Processes = 1,
        clock: Clock = "wall",
        rounds: Annotated[int, at_least(2)] = 10,
        least_ms: Annotated[float, above(0), at_most(10_000)] = 10.0,
        device: str | None = None,
        seed: Seed = 0,
    ) -> None:
        if judged > networks - LEAST:
            expected = f"`judged` must be at most {networks - LEAST}, so that {LEAST} are left"
            raise InputError(expected, got=judged, where="study.judged")
        self.networks, self.judged, self.conditions = networks, judged, Conditions(runtime, threads, clock)
        self.rounds, self.least_ms, self.seed = rounds, least_ms, seed
        self.device = device

    def run(
        self,
        space: SearchSpace,
        network: NetworkFactory,
        network_sizes: Mapping[str, Any],
        data: SearchData,
        folder: Path,
        accelerator: torch.device = CPU,
    ) -> Findings:
        """Measure, predict, and write the device."""
        self.conditions = Conditions(**{**vars(self.conditions), "accelerator": accelerator.type})
        drawn = draw_distinct(space, self.networks, torch.Generator().manual_seed(self.seed))
        settings = {
            **device_settings(space, data, network_sizes),
            **self.conditions.settings,
            "torch": torch.__version__,
        }
        times = self._times(drawn, space, network, data.image, folder, settings)
        ms, errors = medians(times)
        measured = dict(zip(map(space.notation, drawn), ms.tolist(), strict=True))
        write_device(folder / FILE, self.device or _name_of(accelerator), measured, settings)
        macs = np.array([float(cost(network(genotype), data.image).macs) for genotype in drawn])
        return self._judge(space, drawn, times, macs, (ms, errors))

    def _times(
        self,
        drawn: Sequence[Genotype],
        space: SearchSpace,
        network: NetworkFactory,
        image: tuple[int, int, int],
        folder: Path,
        settings: Mapping[str, str],
    ) -> Array:
        """Return milliseconds, (networks, rounds); measure if they are not in the file."""
        file = PoolFile(folder / TIMES, [f"round_{number}" for number in range(self.rounds)], settings)
        names = [space.notation(genotype) for genotype in drawn]
        if {*names} - {*file.read()}:
            for name, row in zip(names, self._measure(drawn, network, image).tolist(), strict=True):
                file.append(name, dict(zip(file.header[1:], row, strict=True)))
        rows = file.read()
        return np.array([[*rows[name].values()] for name in names])

    def _measure(
        self, drawn: Sequence[Genotype], network: NetworkFactory, image: tuple[int, int, int]
    ) -> Array:
        """Return the median milliseconds of each round, (networks, rounds)."""
        builds = [partial(network, genotype) for genotype in drawn]
        options: dict[str, Any] = {"least_ms": self.least_ms, "seed": self.seed}
        return measure_networks(builds, image, self.conditions, self.rounds, **options)

    def _judge(
        self,
        space: SearchSpace,
        drawn: Sequence[Genotype],
        times: Array,
        macs: Array,
        found: tuple[Array, Array],
    ) -> Findings:
        ms, errors = found
        count = self.networks - self.judged
        known = dict(zip(drawn[:count], ms[:count].tolist(), strict=True))
        predictions = LatencyModel(Features(space), known).predict(drawn[count:])
        guess, truth = np.array([latency.ms for latency in predictions]), ms[count:]
        ceiling = spearman(*(np.median(times[count:, half::2], axis=1) for half in (0, 1)))
        numbers = {
            "rho": spearman(guess, truth),
            "rho_repeated": ceiling,
            "rho_macs": spearman(macs[count:], truth),
            "median_error": float(np.median(np.abs(guess / truth - 1))),
        }
        said = [f"{latency.ms:.4g} ± {latency.error:.2g}" for latency in predictions]
        measured = map(Estimate, ms.tolist(), errors.tolist())
        texts = [""] * count + said
        rows: list[list[Entry]] = [
            [space.notation(genotype), ms, text]
            for genotype, ms, text in zip(drawn, measured, texts, strict=True)
        ]
        kind = f"medians of calls; {self.conditions}"
        what = f"{self.judged} networks of {space.name}, predicted from {count} others ({kind})"
        columns = ["ρ", "of a measurement with its repetition", "of multiply-adds", "median error"]
        each = ["network", "measured", "predicted"]
        return Findings(
            [
                Table("predicted", what, columns, [[*numbers.values()]], NOTE),
                Table("latencies", "Milliseconds for one image", each, rows, long=True),
            ],
            numbers=numbers,
        )


def _name_of(device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return name or "device"
