"""What composing a configuration may end in, and its first line."""

from __future__ import annotations

import yaml
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

_OF_NO_CONFIGURATION = (OSError, RecursionError, AttributeError, TypeError, KeyError, AssertionError)
"""What Hydra and OmegaConf run into where a file or a value is none that they have foreseen."""
FAILURES = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, *_OF_NO_CONFIGURATION)


def first_line(error: Exception) -> str:
    """What it says first, without the stop; of YAML all, which has the place."""
    text = (
        str(error)
        if isinstance(error, yaml.YAMLError)
        else next(iter(str(error).strip().splitlines()), type(error).__name__)
    )
    return " ".join(text.split()).rstrip(".")
