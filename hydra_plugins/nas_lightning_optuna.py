"""`hydra/sweeper=nas_optuna`. Hydra finds plugins only in this namespace; see `cli/optuna_sweeper.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class OptunaSweeper(Sweeper):
    """Sample settings of jobs with Optuna, from intervals and lists of values; any launcher runs them.

    Args:
        sampler: tpe, gp, nsga2, or random.
        n_trials: total number of jobs on all machines, including failed ones.
        n_jobs: number of jobs that are launched together.
        objectives: metrics to optimize, or params, macs, and seconds. Default: the setting `objective`.
        directions: maximize or minimize for each objective. Default: inferred from its name.
        seed: seed of the sampler.
        params: overrides that vary, for configuration files.

    >>> OptunaSweeper(n_trials=2).settings["sampler"]
    'tpe'
    """

    def __init__(
        self,
        sampler: str = "tpe",
        n_trials: int = 20,
        n_jobs: int = 1,
        objectives: Sequence[str] | None = None,
        directions: Sequence[str] | None = None,
        seed: int = 0,
        params: dict[str, str] | None = None,
    ) -> None:
        self.settings: dict[str, Any] = {
            "sampler": sampler,
            "n_trials": n_trials,
            "n_jobs": n_jobs,
            "seed": seed,
        }
        self.settings |= {"objectives": objectives, "directions": directions}
        self.params = params or {}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.hydra_context, self.loader = config, hydra_context, hydra_context.config_loader
        self.launcher: Any = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        from nas_lightning.cli.optuna_sweeper import Trials

        overrides = [*(f"{name}={value}" for name, value in self.params.items()), *arguments]
        assert self.config is not None
        trials = Trials(self.config, overrides, self.loader, **self.settings)
        return trials.run(self.launcher, self.validate_batch_is_legal)


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="nas_optuna",
    node={
        "_target_": f"{OptunaSweeper.__module__}.{OptunaSweeper.__qualname__}",
        **{"sampler": "tpe", "n_trials": 20, "n_jobs": 1, "objectives": None, "directions": None},
        **{"seed": 0, "params": None},
    },
    provider="nas_lightning",
)
