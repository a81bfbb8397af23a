"""Hydra, set up for one script: composes its configurations, each once, and runs what has been composed.

Hydra itself would compose a run twice more and a sweep's job once more. Its loader here hands over what has
been composed for the same words; all else is Hydra's: launchers, sweepers, callbacks, `.hydra`.
"""

from __future__ import annotations

import copy
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, run_and_report
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from nas_lightning.cli.alternatives import splitting_alternatives
from nas_lightning.cli.words import folder_key
from nas_lightning.errors import InputError, describe_system_error
from nas_lightning.runs.record import Record

VERSION_BASE = "1.3"
CONFIGURATIONS = "pkg://nas_lightning.conf"


class HandingLoader(ConfigLoaderImpl):
    """Composes what it is asked for; who asks for the same a second time gets a copy of the first."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._ready: dict[tuple[str | None, tuple[str, ...]], DictConfig] = {}

    def load_configuration(
        self, config_name: str | None, overrides: list[str], *args: Any, **options: Any
    ) -> DictConfig:
        key = (config_name, tuple(overrides))
        if key in self._ready:
            return self._ready.pop(key)
        config = super().load_configuration(config_name, overrides, *args, **options)
        self._ready[key] = copy.deepcopy(config)
        return config

    def get_group_options(self, *args: Any, **options: Any) -> list[str]:
        """Those that one chooses from; a name with _ in front is a part of others."""
        return [name for name in super().get_group_options(*args, **options) if not name.startswith("_")]

    def hand_over(self, config_name: str, overrides: Sequence[str], config: DictConfig) -> None:
        """Give this configuration to the next who asks for one of these words."""
        self._ready[config_name, tuple(overrides)] = config

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_ready": {}}  # a launcher's processes compose their own jobs


class Composer:
    """The configurations of a script, ours and those in a user's own folders, which come first.

    Args:
        script: search, train or analyze.
        folders: the user's own.

    >>> with Composer("search") as composer:
    ...     composer.compose(["strategy=darts"]).strategy.momentum
    0.9
    """

    def __init__(self, script: str, folders: Sequence[Path] = ()) -> None:
        version.setbase(VERSION_BASE)
        path = create_config_search_path(CONFIGURATIONS)
        for folder in reversed(folders):
            path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema"))
        self.script, self.folders = script, tuple(folders)
        self.loader = HandingLoader(path)
        self._hydra = Hydra(task_name=script, config_loader=self.loader)

    def __enter__(self) -> Composer:
        GlobalHydra.instance().clear()
        GlobalHydra.instance().initialize(self._hydra)
        return self

    def __exit__(self, *error: object) -> None:
        GlobalHydra.instance().clear()

    def compose(self, words: Sequence[str], *, sweep: bool = False) -> DictConfig:
        """The configuration with the part that is Hydra's own, as of one run or as of a whole sweep."""
        mode = RunMode.MULTIRUN if sweep else RunMode.RUN
        return self.loader.load_configuration(self.script, list(words), mode)

    def run(self, config: DictConfig, job: Callable[[DictConfig], Any], *, sweep: bool) -> None:
        """Let Hydra run a composed configuration: one job, or those of its sweeper by its launcher."""
        words = words_of(config)
        self.loader.hand_over(self.script, words, config)
        start, begun, process = self._hydra.multirun if sweep else self._hydra.run, False, os.getpid()

        def begin(cfg: DictConfig) -> Any:
            nonlocal begun
            begun = True
            try:
                return job(cfg)
            except SystemExit as end:
                if os.getpid() == process or not isinstance(end.code, str):
                    raise
                # an engine would say with a traceback that its worker exits, and start another
                raise InputError(end.code.removeprefix("error: ")) from None

        try:
            with splitting_alternatives():
                start(config_name=self.script, task_function=begin, overrides=words)
        except Exception as error:
            folder = OmegaConf.select(config, folder_key(sweep))  # a record that a full disk refuses, say
            if message := describe_system_error(error, folder):
                sys.exit(f"error: {message}")
            if begun or isinstance(error, InputError):
                raise
            lines = str(error).strip().splitlines() or [type(error).__name__]
            expected = (
                f"expected settings of Hydra that it takes, and jobs that come to their end: {lines[0]}"
            )
            raise InputError(expected, where="hydra") from None

    def show(self, config: DictConfig, arguments: Namespace) -> None:
        """Print the configuration, as `--cfg` asks for it."""
        words = words_of(config)
        self.loader.hand_over(self.script, words, config)
        kind, package, resolve = arguments.cfg, arguments.package, arguments.resolve
        run_and_report(lambda: self._hydra.show_cfg(self.script, words, kind, package, resolve))


def words_of(config: DictConfig) -> list[str]:
    """What a configuration was composed from, as it was written."""
    written: Any = OmegaConf.to_container(config.hydra.overrides, resolve=False)
    return [*written["hydra"], *written["task"]]


def record_of(cfg: DictConfig, hydra: Any) -> Record:
    """How a job or a sweep is started, of what was composed for it and of what Hydra says of itself."""
    plain: Any = [OmegaConf.to_container(part, resolve=False, enum_to_str=True) for part in (cfg, hydra)]
    config, own = plain
    return Record(tuple(hydra.overrides.task), {k: v for k, v in config.items() if k != "hydra"}, own)
