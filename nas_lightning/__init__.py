"""Neural architecture search made of PyTorch Lightning parts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nas_lightning.version import __version__

if TYPE_CHECKING:
    from nas_lightning.models.export import export
    from nas_lightning.models.file import describe, load, save

__all__ = ["__version__", "describe", "export", "load", "save"]
_HOMES = {"export": "nas_lightning.models.export"}


def __getattr__(name: str) -> Any:
    """What is imported when it is first asked for: `import nas_lightning` alone is instant."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "nas_lightning.models.file")), name)
