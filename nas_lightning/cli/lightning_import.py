"""Lightning in a fraction of the time: three seconds of its import are for what a job does not use.

Lightning imports torchmetrics, which imports torchvision, matplotlib's pyplot and scipy's signals wherever
they are installed, and torch's compiler. Our own parts use none of them. A user's own module may, so where a
configuration names one, nothing is left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from omegaconf import DictConfig, OmegaConf

from nas_lightning.cli.deferred_compiler import import_without_compiler

_LEFT_OUT = ("matplotlib", "PIL", "scipy", "torchvision", "transformers")
_LIBRARIES = ("nas_lightning.", "pytorch_lightning.")
_OPERATION = r"^\s*- [^\W\d]\w*\.\w\S*$"  # a dotted name in a list


def import_lightning(config: DictConfig) -> None:
    """Import Lightning, lightly where the job has no module of a user's own."""
    if not names_own_module(config):
        with _hide():
            import torchmetrics  # noqa: F401
        import_without_compiler("pytorch_lightning")


def names_own_module(config: DictConfig) -> bool:
    """Whether something in a configuration is not of this package or Lightning.

    >>> [names_own_module(OmegaConf.create({"_target_": name})) for name in ("nas_lightning.a.B", "mine.B")]
    [False, True]
    >>> names_own_module(OmegaConf.create({"ops": ["skip_connect", "my_ops.GhostConv"]}))
    True
    """
    text = OmegaConf.to_yaml(config)
    targets = re.findall(r"_target_: (\S+)", text)
    own = any(not target.startswith(_LIBRARIES) for target in targets)
    return own or re.search(_OPERATION, text, re.MULTILINE) is not None


@contextmanager
def _hide() -> Iterator[None]:
    """Within, those packages cannot be imported, and requirements of them count as not met."""
    from lightning_utilities.core.imports import RequirementCache

    said = RequirementCache.__bool__

    def met(requirement: RequirementCache) -> bool:
        name = re.split(r"[^\w.-]", requirement.requirement or "", maxsplit=1)[0]
        return name not in _LEFT_OUT and said(requirement)

    modules: dict[str, Any] = sys.modules
    hidden = [name for name in _LEFT_OUT if name not in modules]
    modules.update(dict.fromkeys(hidden))  # None: not to be imported
    try:
        with patch.object(RequirementCache, "__bool__", met):
            yield
    finally:
        for name in hidden:
            del modules[name]
