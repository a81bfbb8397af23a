"""Lightning is given out as two packages, `pytorch_lightning` and `lightning.pytorch`, each with its classes.

Which one the user has loaded decides: where that is `lightning`, or where it alone is installed, our modules
get its classes under the names of the other.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

NAMES = {"pytorch_lightning": "lightning.pytorch", "lightning_fabric": "lightning.fabric"}


class OtherName(MetaPathFinder, Loader):
    """Finds the modules of one package under the names of another.

    Args:
        names: of packages, each with that of the package which is meant.

    >>> import json.decoder
    >>> finder = OtherName({"jason": "json"})
    >>> finder.create_module(finder.find_spec("jason.decoder")) is json.decoder
    True
    """

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        real = self._real(fullname)
        return None if real is None or find_spec(real) is None else ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(str(self._real(spec.name)))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run; the import has given it the other name, which it does not keep."""
        assert module.__spec__ is not None, "imported right now"
        module.__spec__ = module.__spec__.loader_state

    def _real(self, name: str) -> str | None:
        package, _, rest = name.partition(".")
        return ".".join(filter(None, [self.names[package], rest])) if package in self.names else None


def follow_loaded_package() -> None:
    """Let `import pytorch_lightning` mean `lightning.pytorch`, where that is what the user has."""
    if "pytorch_lightning" in sys.modules or any(isinstance(finder, OtherName) for finder in sys.meta_path):
        return
    if "lightning.pytorch" in sys.modules or (_is_there("lightning") and not _is_there("pytorch_lightning")):
        sys.meta_path.insert(0, OtherName(NAMES))


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:  # of a finder that refuses it
        return False
