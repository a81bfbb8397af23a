"""A DARTS step against the published way of computing it, and a single path against its network.

    python -m benchmarks.supernet_step [--batch 16] [--rounds 5] [--weights | --compile]

Prints four figures: speed-up of the architecture step (target ≥ 4.7) and of the weight step (target ≥ 3.1),
unrolled step over first-order weight step (target ≤ 3.4), sampled path over the same discrete network (target
≤ 1.02). The published architecture step is `loss.backward()`, which differentiates the weights as well.
"""

from __future__ import annotations

import argparse
import copy
import time
from functools import partial

import torch
from torch.nn import functional as F

from benchmarks.reference.darts_supernet import PlainSupernet
from benchmarks.timing import medians, report
from nas_lightning.spaces import DartsSpace
from nas_lightning.spaces.operations import SEARCH_NORM
from nas_lightning.strategies.one_shot.unrolled import VirtualStep, unrolled_gradients
from nas_lightning.training.gradients import constant, gradients

FOUR = "the unrolled step's four gradients"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="compiled steps instead, after minutes")
    parser.add_argument("--weights", action="store_true", help="only the published weight step and ours")
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    torch.manual_seed(0)
    space = DartsSpace()
    supernet = space.supernet(in_channels=3, num_classes=10, channels=16, cells=options.cells)
    plain = PlainSupernet(copy.deepcopy(supernet), space.group.edges, space.group.ops)
    x, y = torch.randn(options.batch, 3, 32, 32), torch.randint(10, (options.batch,))
    arch = {name: torch.nn.Parameter(1e-3 * torch.randn(group.shape)) for name, group in space.groups.items()}
    genotype = space.sample(torch.Generator().manual_seed(0))
    path = space.one_hot(genotype)
    size = {"channels": 16, "cells": options.cells, "norm": SEARCH_NORM}
    network = space.network(genotype, in_channels=3, num_classes=10, **size)

    def soft(detach: bool = True):
        weights = {name: torch.softmax(beta, dim=-1) for name, beta in arch.items()}
        return {name: w.detach() for name, w in weights.items()} if detach else weights

    lists = {net: list(net.parameters()) for net in (supernet, plain, network)}

    def weight_step(net, *weights):
        gradients(F.cross_entropy(net(x, *weights), y), lists[net])

    def arch_loss(net=supernet):
        return F.cross_entropy(net(x, soft(detach=False)), y)

    def arch_step():
        with constant(lists[supernet]):
            gradients(arch_loss(), list(arch.values()))

    def four_gradients():
        weight_step(supernet, soft())
        gradients(arch_loss(), [*lists[supernet], *arch.values()])
        arch_step()
        arch_step()

    parameters = lists[supernet]
    step = VirtualStep(0.025, 0.9, 3e-4, 5.0, [torch.zeros_like(p) for p in parameters])
    names = ("plain weight step", "our weight step", "our unrolled step", "single path", "discrete network")
    arch_names = ("plain architecture step", "our architecture step")
    works = {
        names[0]: lambda: weight_step(plain, soft()),
        names[1]: lambda: weight_step(supernet, soft()),
        names[2]: lambda: unrolled_gradients(arch_loss, arch_loss, parameters, list(arch.values()), step),
        names[3]: lambda: weight_step(supernet, path),
        names[4]: lambda: weight_step(network),
        arch_names[0]: lambda: gradients(arch_loss(plain), [*lists[plain], *arch.values()]),
        arch_names[1]: arch_step,
        FOUR: four_gradients,
    }
    if options.compile:
        compiled = copy.deepcopy(supernet)
        compiled.backbone.compile_cells()
        return report_compiled(plain, supernet, compiled, arch, (x, y), options.rounds)
    if options.weights:
        works = {name: works[name] for name in names[:2]}
    seconds = medians(works, options.rounds)
    report(seconds)
    print(f"published weight step / ours: {seconds[names[0]] / seconds[names[1]]:.2f} (target ≥ 3.1)")
    if options.weights:
        return
    ours, unrolled, single, discrete = (seconds[name] for name in names[1:])
    print(f"single path / discrete network: {single / discrete:.3f} (target ≤ 1.02)")
    least = seconds[FOUR] / ours
    print(
        f"unrolled step / first-order weight step: {unrolled / ours:.2f} (target ≤ 3.4, at least {least:.2f})"
    )
    published_arch, our_arch = (seconds[name] for name in arch_names)
    print(f"published architecture step / ours: {published_arch / our_arch:.2f} (target ≥ 4.7)")


def report_compiled(plain, supernet, compiled, arch, batch, rounds):
    """Report published steps, ours, and ours with compiled cells, and the duration of their first steps."""

    def descend(net, *, weights, published=False):
        shares = {name: torch.softmax(beta, dim=-1) for name, beta in arch.items()}
        given = {name: share.detach() for name, share in shares.items()} if weights else shares
        parameters = list(net.parameters())
        wanted = parameters if weights else [*(parameters if published else ()), *arch.values()]
        with constant(() if weights or published else parameters):
            gradients(F.cross_entropy(net(batch[0], given), batch[1]), wanted)

    for kind, weights, target in (("weight", True, 3.6), ("arch", False, 5.4)):
        works = {
            f"published {kind} step": partial(descend, plain, weights=weights, published=True),
            f"eager {kind} step": partial(descend, supernet, weights=weights),
            f"compiled {kind} step": partial(descend, compiled, weights=weights),
        }
        start = time.perf_counter()
        works[f"compiled {kind} step"]()
        first = time.perf_counter() - start
        seconds = medians(works, rounds)
        report(seconds)
        published, eager, fast = seconds.values()
        print(f"the first compiled {kind} step took {first:.0f} s of wall time")
        if fast < eager:
            print(f"compiled {kind} steps pay after {first / (eager - fast):.0f}")
        print(f"eager {kind} step / compiled: {eager / fast:.2f}")
        print(f"published {kind} step / compiled: {published / fast:.2f} (target ≥ {target})", flush=True)
    versions = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    print(f"{len(compiled.backbone.widths)} cells, {versions} graphs compiled")


if __name__ == "__main__":
    main()
