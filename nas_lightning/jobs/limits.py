"""Limits on the parts of a search."""

from __future__ import annotations

from dataclasses import replace

from nas_lightning.benchmarks.device import Device, device_settings
from nas_lightning.cost.limits import Limits, NetworkCosts
from nas_lightning.data import SearchData
from nas_lightning.jobs.parts import Parts
from nas_lightning.spaces.limited.bounds import Bounds
from nas_lightning.spaces.limited.space import check_bounds, limit_space


def limit_parts(parts: Parts[SearchData], limits: Limits) -> Parts[SearchData]:
    """The parts with a space in which only networks within the limits are left.

    >>> from nas_lightning.data import Digits
    >>> from nas_lightning.spaces import NasBench201
    >>> sizes = {"channels": 4, "cells": 1}
    >>> parts = Parts(NasBench201(), SearchData(Digits()), network_sizes=sizes)
    >>> limit_parts(parts, Limits(params=4000))
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: expected at least 4,822, which the smallest network of the space has, \
got '4,000' (in limits.params)
    """
    named = limits.of_networks
    if not named:
        return parts
    device = None
    if limits.device is not None:
        settings = device_settings(parts.space, parts.data, parts.network_sizes)
        device = Device(limits.device, parts.space, settings)
    measure = NetworkCosts(parts.network, parts.data.image, list(named), device)
    bounds = Bounds(parts.space, named, measure)
    check_bounds(parts.space, bounds)
    return replace(parts, space=limit_space(parts.space, bounds))
