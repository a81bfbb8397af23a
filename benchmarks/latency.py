"""Latency of one network by the study, the limit, `nas-export --benchmark`, and a bare loop.

    python -m benchmarks.latency [--out benchmarks/results/latency.csv] [--repeats 5] [--channels 16]

Each measures the network several times in ONNX Runtime with one thread: alone, and beside two processes that
compute without a pause. The bare loop feeds the exported file and takes the median of 1,000 calls. Run it on
an otherwise idle machine; the medians should agree within 10 %.
"""

import argparse
import csv
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
import torch
from torch import nn

from nas_lightning.data import Fake, SearchData
from nas_lightning.jobs.limits import measure_here
from nas_lightning.jobs.parts import Parts
from nas_lightning.models.export import export
from nas_lightning.models.file import Normalize
from nas_lightning.models.latency import Conditions, benchmark
from nas_lightning.objectives.latency import LEAST, Device, write_device
from nas_lightning.spaces import NasBench201
from nas_lightning.spaces.base import draw_distinct
from nas_lightning.studies.latency import Latency

IMAGE = (3, 32, 32)
BUSY = 2
CONDITIONS = Conditions("onnx")


def bare_loop(path: Path, calls: int = 1000) -> float:
    """Return the median milliseconds of a call in a loop without this package."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    x = {session.get_inputs()[0].name: np.random.default_rng(0).random((1, *IMAGE), dtype=np.float32)}
    for _ in range(20):
        session.run(None, x)
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        session.run(None, x)
        times.append(time.perf_counter() - start)
    return 1000 * median(times)


def ways(folder: Path, channels: int) -> dict[str, Callable[[], float]]:
    """Return functions that measure the same network, in milliseconds."""
    space, data = NasBench201(), SearchData(Fake(shape=IMAGE))
    parts = Parts(space, data, folder, network_sizes={"channels": channels, "cells": 1})
    study = Latency(networks=5, judged=2, runtime="onnx")
    drawn = draw_distinct(space, study.networks, torch.Generator().manual_seed(0))
    genotype = drawn[0]
    table = {space.notation(other): 1.0 + number for number, other in enumerate(drawn[: LEAST + 1])}
    write_device(folder / "device.csv", "here", table, CONDITIONS.settings)
    parts = Parts(
        space,
        data,
        folder,
        network_sizes=parts.network_sizes,
        device=Device(str(folder / "device.csv"), space),
    )
    network = nn.Sequential(Normalize([0.5] * 3, [0.25] * 3), parts.network(genotype)).eval()
    path = export(network, folder / "network.onnx", IMAGE).path
    return {
        "study": lambda: float(np.median(study._measure(drawn[:2], parts.network, IMAGE)[0])),
        "limit": lambda: measure_here(parts, genotype)["ms"],
        "nas-export --benchmark": lambda: benchmark(path, network, IMAGE).ms,
        "bare loop": partial(bare_loop, path),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "latency.csv")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--channels", type=int, default=16)
    options = parser.parse_args()
    rows = [["beside", "way", *(f"ms {number}" for number in range(1, options.repeats + 1)), "/ bare loop"]]
    with TemporaryDirectory() as folder:
        measured = ways(Path(folder), options.channels)
        for count in (0, BUSY):
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
            try:
                found: dict[str, list[float]] = {name: [] for name in measured}
                for _ in range(options.repeats):
                    for name, measure in measured.items():
                        found[name].append(measure())
            finally:
                for process in busy:
                    process.kill()
            bare = median(found["bare loop"])
            for name, ms in found.items():
                ratio = f"{median(ms) / bare:.3f}"
                rows.append([f"{count} busy processes", name, *(f"{value:.4f}" for value in ms), ratio])
                print(*rows[-1], sep="  ", flush=True)
    with options.out.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
