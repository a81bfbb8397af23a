"""Retraining: a Lightning step with `Retrain`, against a bare PyTorch loop over the same network.

    python -m benchmarks.retrain_step [--steps 60]

Both do forward, auxiliary loss, backward, clipping and SGD; `Retrain` also keeps loss and accuracy. The bare
step runs inside the Lightning run, between two of its steps, so that both meet the same machine. Processor
time, one thread, medians over the steps. The last line is the ratio (target ≤ 1.03).
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import logging
import statistics
import sys
import time
import warnings

import pytorch_lightning as pl
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.timing import quiet_trainer, report
from nas_lightning.data.datasets import Fake
from nas_lightning.spaces import DartsSpace
from nas_lightning.training.retrain import Retrain

DARTS_V2 = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1),"
    " ('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)],"
    " normal_concat=[2, 3, 4, 5], reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2),"
    " ('max_pool_3x3', 1), ('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2),"
    " ('max_pool_3x3', 1)], reduce_concat=[2, 3, 4, 5])"
)


class BareLoop:
    """The loop without Lightning, one step at a time."""

    def __init__(self, network):
        self.network = network.train()
        self.optimizer = torch.optim.SGD(network.parameters(), 0.025, momentum=0.9, weight_decay=3e-4)

    def step(self, x, y):
        self.optimizer.zero_grad()
        logits, auxiliary = self.network.forward_auxiliary(x)
        loss = F.cross_entropy(logits, y) + 0.4 * F.cross_entropy(auxiliary, y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 5.0)
        self.optimizer.step()


class Stopwatch(pl.Callback):
    """Times Lightning's steps, and a bare one after each."""

    def __init__(self, bare):
        self.bare, self.lightning, self.plain, self.since = bare, [], [], None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        now = time.process_time()
        if self.since is not None:
            self.lightning.append(now - self.since)
        start = time.process_time()
        self.bare.step(*batch)
        self.since = time.process_time()
        self.plain.append(self.since - start)


def keep_freed_memory() -> None:
    """Stop glibc from returning memory and fetching it again: page by page, at up to a tenth of a step."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        trim_threshold, mmap_threshold = -1, -3  # the names' numbers in malloc.h
        libc.mallopt(trim_threshold, 2**31 - 1)
        libc.mallopt(mmap_threshold, 2**25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60, help="timed steps of each kind")
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    warm_up = 5
    steps = options.steps + warm_up
    data = Fake(
        shape=(3, 32, 32),
        num_classes=10,
        train_size=options.batch_size * 2,
        batch_size=options.batch_size,
        augment=False,
    )
    batches = data.train_batches(2)
    space = DartsSpace()
    network = space.network(
        space.parse(DARTS_V2),
        in_channels=3,
        num_classes=10,
        channels=options.channels,
        cells=options.cells,
        auxiliary=True,
    )
    watch = Stopwatch(BareLoop(copy.deepcopy(network)))
    trainer = quiet_trainer(1, callbacks=[watch])
    loader = torch.utils.data.DataLoader([batches[i % 2] for i in range(steps)], batch_size=None)
    trainer.fit(Retrain(network, 10, drop_path=0.0), loader)
    # a Lightning step is compared with the bare steps on both sides of it
    pairs = list(zip(watch.lightning, watch.plain[:-1], watch.plain[1:], strict=True))[warm_up - 1 :]
    ratio = statistics.median(2 * step / (before + after) for step, before, after in pairs)
    report({"bare PyTorch step": statistics.median(p[1] for p in pairs)})
    report({"Lightning step": statistics.median(p[0] for p in pairs)})
    print(f"Lightning step / bare PyTorch step: {ratio:.3f} (target ≤ 1.03)")


if __name__ == "__main__":
    main()
