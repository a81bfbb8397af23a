"""Neural architecture search with PyTorch Lightning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nas_lightning.version import __version__

if TYPE_CHECKING:
    from nas_lightning.models.export import export
    from nas_lightning.models.file import describe, load, save

__all__ = ["__version__", "describe", "export", "load", "save"]
_HOMES = {"export": "nas_lightning.models.export"}


def __getattr__(name: str) -> Any:
    """Import the public functions on first access, so that `import nas_lightning` does not load torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "nas_lightning.models.file")), name)
