"""Lightning is given out as two packages, `pytorch_lightning` and `lightning.pytorch`, each with its classes.

Which one is loaded first decides: from then on its classes are found under the names of the other, too, so
that our modules and a user's are of one Lightning, whoever is imported first.
"""

from __future__ import annotations

import sys
import warnings
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
        names: of packages, each with that of the package which is meant where that one is loaded.
        missing: those of the names that nothing is installed for: they mean the other, loaded or not.

    >>> import json.decoder
    >>> finder = OtherName({"jason": "json"})
    >>> finder.create_module(finder.find_spec("jason.decoder")) is json.decoder
    True
    """

    def __init__(self, names: dict[str, str], missing: Sequence[str] = ()) -> None:
        self.names, self.missing = names, missing

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
        package = next((known for known in self.names if f"{name}.".startswith(f"{known}.")), None)
        if package is None or not (package in self.missing or _is_itself(self.names[package])):
            return None
        return self.names[package] + name.removeprefix(package)


def follow_loaded_package() -> None:
    """Let the two names of Lightning mean the one that is loaded first, or that alone is installed."""
    if any(isinstance(finder, OtherName) for finder in sys.meta_path):
        return
    if all(_is_itself(name) for name in ("pytorch_lightning", "lightning.pytorch")):
        warnings.warn(
            "pytorch_lightning and lightning.pytorch are both loaded, and their classes are no kin; ours are"
            " those of pytorch_lightning: take its Trainer, or import nas_lightning before either",
            stacklevel=3,
        )
    alone = _is_there("lightning") and not _is_there("pytorch_lightning")
    names = NAMES | {other: name for name, other in NAMES.items()}
    sys.meta_path.insert(0, OtherName(names, [*NAMES] if alone else []))


def _is_itself(package: str) -> bool:
    """Whether a package is loaded, and is not another one that has its name."""
    return getattr(sys.modules.get(package), "__name__", None) == package


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:  # of a finder that refuses it
        return False
