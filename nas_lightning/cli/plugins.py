"""Options of Hydra's own groups, many of which are in packages beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hydra.core.config_loader import ConfigLoader
from hydra.core.object_type import ObjectType

from nas_lightning.errors import InputError, near_match

PACKAGES: Mapping[str, str] = {
    "hydra/launcher/joblib": "hydra-joblib-launcher",
    "hydra/launcher/ray": "hydra-ray-launcher",
    "hydra/launcher/ray_aws": "hydra-ray-launcher",
    "hydra/launcher/rq": "hydra-rq-launcher",
    "hydra/launcher/submitit_local": "hydra-submitit-launcher",
    "hydra/launcher/submitit_slurm": "hydra-submitit-launcher",
    "hydra/sweeper/ax": "hydra-ax-sweeper",
    "hydra/sweeper/nevergrad": "hydra-nevergrad-sweeper",
    "hydra/sweeper/optuna": "hydra-optuna-sweeper",
    "hydra/hydra_logging/colorlog": "hydra-colorlog",
    "hydra/job_logging/colorlog": "hydra-colorlog",
}
"""The plugins that Hydra's documentation lists, by what chooses them."""
_NOT_THERE = re.compile(r"[Cc]ould not find '(hydra/[\w/]+)/([^'/]*)'")


def check_plugin(message: str, loader: ConfigLoader) -> None:
    """Raise where what Hydra says is that one of its groups has no such option.

    The option may have been typed, or a configuration may choose it.
    """
    if not (missing := _NOT_THERE.search(message)):
        return
    group, option = missing.groups()
    package = PACKAGES.get(f"{group}/{option}")
    options = loader.get_group_options(group, results_filter=ObjectType.CONFIG)
    hint = f"pip install {package}" if package else near_match(option, options)
    raise InputError(f"expected an option of {group} that is installed ({hint})", got=option, where=group)
