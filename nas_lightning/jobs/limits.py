"""Apply limits and objectives to the parts of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from nas_lightning.data import SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.jobs.parts import Parts
from nas_lightning.metrics.base import Metric
from nas_lightning.models.latency import Conditions, measure_networks
from nas_lightning.objectives.fronts import Objectives
from nas_lightning.objectives.latency import Device, device_settings, medians
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
    nas_lightning.errors.InputError: `params` must be at least 4,822, as the smallest network of the space \
has, got '4,000' (in limits.params)
    >>> limit_parts(parts, Limits(), ["params", "macs"]).objectives.names
    ('params', 'macs')
    """
    device = _device(parts, limits, objectives)
    parts = replace(parts, limits=limits.of_networks, device=device)
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


def limited_costs(parts: Parts[SearchData], genotype: Genotype) -> dict[str, dict[str, Any]]:
    """Return the limited costs of a network, and its latency if there is a device: `value` and `limit`."""
    names = dict.fromkeys([*parts.limits, *([LATENCY] if parts.device else [])])
    counted = NetworkCosts(parts.network, parts.data.image, [name for name in names if name != LATENCY])
    found: dict[str, dict[str, Any]] = {name: {"value": value} for name, value in counted(genotype).items()}
    if parts.device is not None:
        latency = parts.device.latency(genotype)
        found[LATENCY] = {"value": latency.ms, "error": latency.error, "source": parts.device.name}
    return {name: {**found[name], **_limit(parts, name)} for name in names}


def _limit(parts: Parts[SearchData], name: str) -> dict[str, float]:
    return {"limit": parts.limits[name]} if name in parts.limits else {}


def measure_here(parts: Parts[SearchData], genotype: Genotype) -> dict[str, Any]:
    """Measure a network on this machine under the conditions of the device; empty if they are unknown."""
    conditions = None if parts.device is None else Conditions.read(parts.device.settings)
    if conditions is None or conditions.runtime == "compiled":  # minutes
        return {}
    try:
        times = measure_networks([partial(parts.network, genotype)], parts.data.image, conditions)
    except InputError:  # without the packages for ONNX
        return {}
    ms, errors = medians(times)
    return {"ms": float(ms[0]), "error": float(errors[0]), "conditions": str(conditions)}


def _no_costs(genotype: Genotype) -> dict[str, float]:
    return {}


def _device(parts: Parts[SearchData], limits: Limits, objectives: Sequence[str]) -> Device | None:
    """Return the device of a latency limit or objective; raise if one is given without the other."""
    is_asked = limits.latency_ms is not None or LATENCY in objectives
    if is_asked and limits.device is None:
        raise InputError("A latency needs a device: pass limits.device=my_laptop.csv", where="limits.device")
    if limits.device is None:
        return None
    if not is_asked:
        raise InputError("`limits.device` needs limits.latency_ms, or latency_ms among the objectives.")
    settings = device_settings(parts.space, parts.data, parts.network_sizes)
    return Device(limits.device, parts.space, settings)
