"""Limits and objectives on the parts of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.jobs.parts import Parts
from nas_lightning.metrics.base import Metric
from nas_lightning.objectives.fronts import Objectives
from nas_lightning.objectives.latency import Device, device_settings
from nas_lightning.objectives.limits import Limits, NetworkCosts
from nas_lightning.spaces.constrained import Bounds, check_bounds, limit_space

LATENCY = "latency_ms"


def limit_parts(
    parts: Parts[SearchData],
    limits: Limits,
    objectives: Sequence[str] = (),
    metrics: Mapping[str, Metric] | None = None,
    reference: Sequence[float] | None = None,
) -> Parts[SearchData]:
    """The parts with a space in which only networks within the limits are left, and with objectives.

    Args:
        parts: of a search.
        limits: of the networks; `limits.device` is that of the objectives, too.
        objectives: their names; none: one thing counts, as the strategy has it.
        metrics: the objectives that are metrics.
        reference: see `Objectives`.

    >>> from nas_lightning.data import Digits
    >>> from nas_lightning.spaces import NasBench201
    >>> sizes = {"channels": 4, "cells": 1}
    >>> parts = Parts(NasBench201(), SearchData(Digits()), network_sizes=sizes)
    >>> limit_parts(parts, Limits(params=4000))
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: expected at least 4,822, which the smallest network of the space has, \
got '4,000' (in limits.params)
    >>> limit_parts(parts, Limits(), ["params", "macs"]).objectives.names
    ('params', 'macs')
    """
    device = _device(parts, limits, objectives)
    if objectives:
        given = None if reference is None else tuple(reference)
        aims = Objectives(tuple(objectives), _no_costs, metrics or {}, given)
        costs = NetworkCosts(parts.network, parts.data.image, list(aims.of_costs), device)
        parts = replace(parts, objectives=replace(aims, costs=costs))
    named = limits.of_networks
    if not named:
        return parts
    measure = NetworkCosts(parts.network, parts.data.image, list(named), device)
    known = [] if device is None or LATENCY not in named else device.fastest(named[LATENCY])
    bounds = Bounds(parts.space, named, measure, known)
    check_bounds(parts.space, bounds)
    return replace(parts, space=limit_space(parts.space, bounds))


def _no_costs(genotype: Genotype) -> dict[str, float]:
    return {}


def _device(parts: Parts[SearchData], limits: Limits, objectives: Sequence[str]) -> Device | None:
    """The device of a limit or an objective; raises where there is one without the other."""
    is_asked = limits.latency_ms is not None or LATENCY in objectives
    if is_asked and limits.device is None:
        raise InputError("expected a device, such as my_laptop.csv, got none", where="limits.device")
    if limits.device is None:
        return None
    if not is_asked:
        raise InputError("expected limits.latency_ms beside it", got=limits.device, where="limits.device")
    settings = device_settings(parts.space, parts.data, parts.network_sizes)
    return Device(limits.device, parts.space, settings)
