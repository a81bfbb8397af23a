"""Apply limits and objectives to the parts of a search."""

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
    """Return the parts with a space of only the networks within the limits, and with objectives.

    Args:
        parts: the parts of a search.
        limits: limits of the networks; `limits.device` also applies to the objectives.
        objectives: names of the objectives. Default: the single objective of the strategy.
        metrics: the objectives that are metrics.
        reference: reference point of the hypervolume, see `Objectives`.

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
    """Return the device of a latency limit or objective; raise if one is given without the other."""
    is_asked = limits.latency_ms is not None or LATENCY in objectives
    if is_asked and limits.device is None:
        raise InputError("expected a device, such as my_laptop.csv, got none", where="limits.device")
    if limits.device is None:
        return None
    if not is_asked:
        raise InputError("`limits.device` needs limits.latency_ms, or latency_ms among the objectives.")
    settings = device_settings(parts.space, parts.data, parts.network_sizes)
    return Device(limits.device, parts.space, settings)
