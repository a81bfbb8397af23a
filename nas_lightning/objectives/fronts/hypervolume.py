"""The volume that points dominate below a reference, all objectives minimised (Zitzler & Thiele 1999).

    HV(A) = volume of ∪_{a ∈ A} [a, r]

It is summed up over slices between the points' values of the last objective (Zitzler 2001): within a slice
the points below it are a front of one objective less.
"""

from __future__ import annotations

import numpy as np

from nas_lightning.errors import InputError
from nas_lightning.objectives.fronts.dominance import Array, front_of


def hypervolume(values: Array, reference: Array) -> float:
    """HV of (points, objectives) below a reference of (objectives,); what is not below it adds nothing.

    >>> hypervolume(np.array([[1.0, 2.0], [2.0, 1.0], [5.0, 0.0]]), np.array([3.0, 3.0]))
    3.0
    """
    if values.shape[1:] != reference.shape:
        raise InputError("expected a reference with a number an objective", got=list(reference.shape))
    return _volume(values[(values < reference).all(axis=1)], reference)


def _volume(values: Array, reference: Array) -> float:
    if not len(values):
        return 0.0
    if len(reference) == 1:
        return float(reference[0] - values.min())
    if len(reference) == 2:
        return _area(values, reference)
    values = values[np.argsort(values[:, -1], kind="stable")]
    levels = np.append(values[:, -1], reference[-1])
    volume = 0.0
    for count, thickness in enumerate(np.diff(levels), 1):
        if thickness > 0:
            volume += thickness * _volume(values[:count, :-1], reference[:-1])
    return float(volume)


def _area(values: Array, reference: Array) -> float:
    """The same of two objectives: steps of a staircase."""
    front = values[front_of(values)]
    ceilings = np.append(reference[1], front[:-1, 1])
    return float(((reference[0] - front[:, 0]) * (ceilings - front[:, 1])).sum())
