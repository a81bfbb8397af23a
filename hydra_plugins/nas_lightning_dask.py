"""`hydra/launcher=nas_dask`: run the jobs of a sweep on a Dask cluster."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, configure_log, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict


class DaskLauncher(Launcher):
    """Launch jobs with Dask's distributed scheduler.

    Args:
        address: address of a running scheduler, such as tcp://host:8786. Default: start one on this machine.
        n_workers: number of worker processes on this machine; each runs one job at a time.

    >>> DaskLauncher(n_workers=2).n_workers
    2
    """

    def __init__(self, address: str | None = None, n_workers: int = 2) -> None:
        self.address, self.n_workers = address, n_workers

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        Path(str(self.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        state = Singleton.get_state()
        with _client(self.address, self.n_workers) as client:
            futures = [
                client.submit(
                    run_in_worker,
                    *(initial_job_idx + place, [*overrides], self.context, self.config, self.function, state),
                    pure=False,
                    retries=0,
                )
                for place, overrides in enumerate(job_overrides)
            ]
            return list(client.gather(futures))


def run_in_worker(
    number: int,
    overrides: list[str],
    context: HydraContext,
    config: DictConfig,
    function: TaskFunction,
    state: dict[Any, Any],
) -> JobReturn:
    """Run a job in the process of a worker."""
    from hydra.core.hydra_config import HydraConfig

    setup_globals()
    Singleton.set_state(state)
    own = context.config_loader.load_sweep_config(config, overrides)
    with open_dict(own):
        own.hydra.job.id, own.hydra.job.num = f"{own.hydra.job.name}_{number}", number
    HydraConfig.instance().set_config(own)
    return run_job(
        hydra_context=context,
        config=own,
        task_function=function,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def _client(address: str | None, n_workers: int) -> Any:
    """Return a client of the scheduler."""
    from nas_lightning.backends import connect_dask  # imports torch; Hydra imports plugins at every start
    from nas_lightning.errors import InputError

    if find_spec("distributed") is None:
        raise InputError("launcher=dask needs Dask (pip install distributed)", where="launcher")
    return connect_dask(address, n_workers)


ConfigStore.instance().store(
    group="hydra/launcher",
    name="nas_dask",
    node={
        "_target_": f"{DaskLauncher.__module__}.{DaskLauncher.__qualname__}",
        **{"address": None, "n_workers": 2},
    },
    provider="nas_lightning",
)
