"""Seeds and generators that depend only on what they are for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch


def generator(*key: int) -> torch.Generator:
    """Return a generator that depends only on the key.

    >>> a, b, c = (torch.randint(1000, (), generator=generator(*k)).item() for k in [(0, 1), (0, 1), (1, 0)])
    >>> a == b, a == c
    (True, False)
    """
    return torch.Generator().manual_seed(seed_of(*key))


def seed_of(*key: int) -> int:
    """Return a seed of 63 bits that depends on all parts of the key and their order."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_of_name(seed: int, name: str) -> int:
    """Return a seed of 63 bits for an architecture, the same in every process and version of Python.

    >>> seed_of_name(0, "conv~0") == seed_of_name(0, "conv~0") != seed_of_name(1, "conv~0")
    True
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "big") >> 1


def choose(items: Iterable[Any], generator: torch.Generator) -> Any:
    """Return one of the items, uniformly at random."""
    items = list(items)
    return items[int(torch.randint(len(items), (), generator=generator))]
