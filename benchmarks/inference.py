"""Inference of a derived network: by torch, optimized by `load(optimize=True)`, and by ONNX Runtime.

    python -m benchmarks.inference [--rounds 20] [--batch 1]

DARTS_V2 with 36 channels and 20 cells on 32×32. Processor time of all threads. Prints torch's over the frozen
network's (target ≥ 1.4 for one image), over ONNX Runtime's, and ONNX Runtime's over that of its bare session
(target ≤ 1.1).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import onnxruntime
import torch

from benchmarks.retrain_step import DARTS_V2
from benchmarks.timing import medians, report
from nas_lightning.models.export import INPUT, OUTPUT, FrozenNetwork, OnnxNetwork, export
from nas_lightning.spaces import DartsSpace


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=1)
    options = parser.parse_args()
    space, size = DartsSpace(), {"in_channels": 3, "num_classes": 10, "channels": 36, "cells": 20}
    network = space.network(space.parse(DARTS_V2), **size).eval().requires_grad_(False)
    frozen, fast = FrozenNetwork(network, (3, 32, 32)), OnnxNetwork(network, (3, 32, 32))
    x = torch.randn(options.batch, 3, 32, 32)
    array = x.numpy()
    works = {"torch": lambda: network(x), "frozen": lambda: frozen(x), "ONNX Runtime": lambda: fast(x)}
    with TemporaryDirectory() as folder:
        path = export(network, Path(folder) / "network.onnx", (3, 32, 32)).path
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    works["bare session"] = lambda: session.run([OUTPUT], {INPUT: array})
    seconds = medians(works, options.rounds, warmup=3)
    report(seconds)
    print(f"torch / frozen: {seconds['torch'] / seconds['frozen']:.2f}")
    print(f"torch / ONNX Runtime: {seconds['torch'] / seconds['ONNX Runtime']:.2f}")
    print(f"ONNX Runtime / bare session: {seconds['ONNX Runtime'] / seconds['bare session']:.2f}")


if __name__ == "__main__":
    main()
