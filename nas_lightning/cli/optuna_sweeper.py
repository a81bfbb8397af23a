"""Run the jobs of a sweep as Optuna trials.

A trial has the number of its job. The journal in the sweep's folder stores all trials: the same command
continues the sweep, on this machine or another. A trial whose process has ended runs again in its folder.
"""

from __future__ import annotations

import math
import os
import re
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import optuna
import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from nas_lightning.errors import InputError, near_match
from nas_lightning.runs.folder import JOURNAL, PRUNED, STUDY, RunFolder, open_storage
from nas_lightning.utils.files import hold, turn, write_whole
from nas_lightning.validation import DISTINCT, Seed, check_argument, entries

Direction = Literal["maximize", "minimize"]
Objectives = Annotated[Sequence[str], entries(1), DISTINCT] | None
WHERE = "hydra.sweeper"
RESULTS = "optimization_results.yaml"  # the name that Hydra's Optuna plugin uses
_DIRECTIONS: dict[str, Direction] = {"maximize": "maximize", "minimize": "minimize"}
_LESS = ("loss", "error", "rank", "params", "macs", "seconds", "latency_ms", "memory_mb")
_OWNER, _OWNERS = "owner", ".optuna"
_PLAIN = re.compile(r"\w[\w.-]{,199}")  # safe as a folder's name
SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}


class Trials:
    """The trials of a sweep.

    Args:
        config: the configuration of the sweep, with the node `hydra`.
        overrides: the overrides; those that vary are sampled.
        loader: Hydra's config loader.
        sampler: one of `SAMPLERS`.
        n_trials: total number of trials.
        n_jobs: number of trials that are launched together.
        objectives: metrics to optimize. Default: the setting `objective`.
        directions: `maximize` or `minimize` for each objective. Default: inferred from its name.
        seed: seed of the sampler.
    """

    def __init__(
        self,
        config: DictConfig,
        overrides: Sequence[str],
        loader: ConfigLoader,
        *,
        sampler: str,
        n_trials: int,
        n_jobs: int,
        objectives: Sequence[str] | None,
        directions: Sequence[str] | None,
        seed: int,
    ) -> None:
        if sampler not in SAMPLERS:
            raise InputError(
                f"`{WHERE}.sampler` has no option `{sampler}` ({near_match(sampler, SAMPLERS)})."
            )
        for name, count in (("n_trials", n_trials), ("n_jobs", n_jobs)):
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise InputError(f"`{WHERE}.{name}` must be at least 1, got {count}.")
        check_argument("seed", seed, Seed, f"{WHERE}.seed")
        check_argument("objectives", objectives, Objectives, f"{WHERE}.objectives")
        self.config, self.n_trials, self.n_jobs = config, n_trials, n_jobs
        self.folder = Path(config.hydra.sweep.dir)
        self.objectives = [*objectives] if objectives else [str(config.objective)]
        self.directions = directions_of(self.objectives, directions)
        parsed = OverridesParser.create(loader).parse_overrides([*overrides])
        self.space = {o.get_key_element(): distribution(o) for o in parsed if o.is_sweep_override()}
        if not self.space:
            raise InputError("Nothing varies. Pass a setting such as strategy.lr=interval(0.01,0.1).")
        self.chooses = any(map(loader.get_group_options, self.space))  # jobs may differ in their metrics
        self.fixed = [str(o.input_line) for o in parsed if not o.is_sweep_override()]
        self.make_sampler, self.seed = SAMPLERS[sampler], seed
        machine = re.sub(r"[^\w.-]", "_", socket.gethostname())
        self.owner = f"on_{machine}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def run(self, launcher: Launcher, check: Callable[[list[list[str]]], None]) -> list[Any]:
        """Launch trials until there are `n_trials`; return the `JobReturn` of each for Hydra."""
        returns: list[Any] = []
        OmegaConf.save(self.config, self.folder / "multirun.yaml")
        self.storage = open_storage(self.folder)
        study = self._study()
        with ExitStack() as stack:
            stack.enter_context(hold(_owners_folder(self.folder, self.owner)))
            while trials := self._next(study):
                check([self._overrides(trial) for trial in trials])
                for together in _consecutive(trials):
                    batch = [self._overrides(trial) for trial in together]
                    returns += launcher.launch(batch, initial_job_idx=together[0].number)
                    self._tell(study, together)
        self._write_best(study)
        return returns

    def _study(self) -> optuna.Study:
        try:
            return optuna.create_study(
                study_name=STUDY, storage=self.storage, directions=self.directions, load_if_exists=True
            )
        except ValueError as error:  # the stored study has other directions
            raise InputError(f"The sweep in `{self.folder}` has other objectives: {error}") from None

    def _next(self, study: optuna.Study) -> list[FrozenTrial]:
        """Return the trials to launch, which no other process can take meanwhile."""
        with turn(self.folder / _OWNERS):
            return self._take_over(study) or self._draw(study)

    def _take_over(self, study: optuna.Study) -> list[FrozenTrial]:
        """Take over the running trials whose processes have ended."""
        running = [trial for trial in self._trials(study) if trial.state == TrialState.RUNNING]
        others = [trial for trial in running if trial.user_attrs[_OWNER] != self.owner]
        gone = [trial for trial in others if _is_gone(self.folder, trial.user_attrs[_OWNER])]
        for trial in gone:
            number = self.storage.get_study_id_from_name(STUDY)
            trial_id = self.storage.get_trial_id_from_study_id_trial_number(number, trial.number)
            self.storage.set_trial_user_attr(trial_id, _OWNER, self.owner)
        return gone

    def _draw(self, study: optuna.Study) -> list[FrozenTrial]:
        """Sample the next trials.

        Each has a new sampler, so that the values do not depend on which process sampled earlier ones. Values
        are sampled in memory and then stored at once: a kill leaves no incomplete trial in the journal.
        """
        drawn: list[FrozenTrial] = []
        while len(drawn) < self.n_jobs and (count := len(trials := self._trials(study))) < self.n_trials:
            draft = optuna.create_study(
                directions=self.directions, sampler=self.make_sampler(self.seed + count)
            )
            draft.add_trials(trials)
            draft.ask(self.space).set_user_attr(_OWNER, self.owner)
            study.add_trial(draft.get_trials(deepcopy=False)[count])
            drawn.append(self._trials(study)[count])
        return drawn

    def _trials(self, study: optuna.Study) -> list[FrozenTrial]:
        """Return all trials of the journal.

        Raises:
            InputError: A trial has values that this sweep cannot draw. They become overrides, so values that
                somebody else wrote could run code.
        """
        trials = study.get_trials(deepcopy=False)
        for trial in trials:
            where, owner = f"{self.folder / JOURNAL}, trial {trial.number}", trial.user_attrs.get(_OWNER)
            if trial.distributions != self.space:
                names = ", ".join(trial.distributions) or "nothing"
                raise InputError(
                    f"This sweep varies {', '.join(self.space)}, its journal {names}.", where=where
                )
            for name, value in trial.params.items():
                if not _can_draw(self.space[name], value):
                    raise InputError(f"This sweep cannot draw {name}={value!r:.100}.", where=where)
            if not isinstance(owner, str) or not _PLAIN.fullmatch(owner):
                raise InputError(f"A process has a plain name, not {owner!r:.100}.", where=where)
        return trials

    def _overrides(self, trial: FrozenTrial) -> list[str]:
        return [*self.fixed, *(f"{name}={value}" for name, value in trial.params.items())]

    def _tell(self, study: optuna.Study, trials: Sequence[FrozenTrial]) -> None:
        """Report the objectives in the jobs' folders to Optuna; a job without them has failed."""
        without = []
        for trial in trials:
            stored = study.get_trials(deepcopy=False)[trial.number]
            numbers = self._numbers(trial.number)
            values = None if numbers is None else values_of(numbers, self.objectives)
            if PRUNED in stored.user_attrs and stored.intermediate_values:
                study.tell(trial.number, state=TrialState.PRUNED)
            elif values is not None:
                study.tell(trial.number, values)
            else:
                study.tell(trial.number, state=TrialState.FAIL)
                without += [] if numbers is None else [numbers]
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        for numbers in without:
            self._report_missing(numbers, alike=not (self.chooses or complete))

    def _numbers(self, number: int) -> dict[str, float] | None:
        """Return the metrics and sizes of a job, None if it has failed."""
        own = OmegaConf.masked_copy(self.config, ["hydra"])
        OmegaConf.set_readonly(own, False)
        OmegaConf.update(own, "hydra.job.num", number)
        run = RunFolder(self.folder / str(own.hydra.sweep.subdir))
        return None if not run.is_finished or run.facts.error is not None else run.facts.numbers

    def _report_missing(self, numbers: Mapping[str, float], *, alike: bool) -> None:
        """Print the objectives that a job lacks; raise if all jobs are alike and will lack them, too."""
        missing = [name for name in self.objectives if name not in numbers]
        if missing and alike:
            raise InputError(f"No job has the objective `{missing[0]}` ({near_match(missing[0], numbers)}).")
        named = " and ".join(missing or self.objectives)
        print(f"a job has no finite {named}: it has failed for Optuna", flush=True)

    def _write_best(self, study: optuna.Study) -> None:
        """Write and print the best trial, or the Pareto front of several objectives."""
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        several = len(self.objectives) > 1
        best = [] if not complete else study.best_trials if several else [study.best_trial]
        solutions = [{"job": t.number, "params": dict(t.params), "values": list(t.values)} for t in best]
        content = {"name": "optuna", "objectives": self.objectives, "solutions": solutions}
        path = write_whole(
            self.folder / RESULTS, yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        )
        for trial in best:
            pairs = zip(self.objectives, trial.values, strict=True)
            settings = " ".join(f"{name}={value}" for name, value in trial.params.items())
            said = ", ".join(f"{name} {value:.4g}" for name, value in pairs)
            print(f"best: job {trial.number}, {said}: {settings}")
        print(path)


def directions_of(objectives: Sequence[str], typed: Sequence[str] | None) -> list[Direction]:
    """Return the direction of each objective: as configured, or inferred from its name.

    >>> directions_of(["valid_accuracy", "params"], None)
    ['maximize', 'minimize']
    """
    if typed is None:
        return ["minimize" if name.endswith(_LESS) else "maximize" for name in objectives]
    if len(typed) != len(objectives) or not {*typed} <= _DIRECTIONS.keys():
        got = ", ".join(map(str, typed))
        raise InputError(
            f"`{WHERE}.directions` must be maximize or minimize, {len(objectives)} times, got [{got}]."
        )
    return [_DIRECTIONS[name] for name in typed]


def values_of(numbers: Mapping[str, float], objectives: Sequence[str]) -> list[float] | None:
    """Return the objectives of a job, None if one is missing or not finite.

    >>> values_of({"valid_accuracy": 0.5, "params": 10}, ["params"])
    [10.0]
    """
    values = [float(numbers.get(name, math.nan)) for name in objectives]
    return values if all(map(math.isfinite, values)) else None


def distribution(override: Override) -> BaseDistribution:
    """Return the distribution of an override of a sweep.

    >>> from hydra.core.override_parser.overrides_parser import OverridesParser
    >>> overrides = ["lr=tag(log,interval(0.01,1))", "n=int(interval(1,4))", "k=range(2,9,3)", "seed=0,1"]
    >>> for override in OverridesParser.create().parse_overrides(overrides):
    ...     print(distribution(override))
    FloatDistribution(high=1.0, log=True, low=0.01, step=None)
    IntDistribution(high=4, log=False, low=1, step=1)
    IntDistribution(high=8, log=False, low=2, step=3)
    CategoricalDistribution(choices=('0', '1'))
    """
    value = override.value()
    try:
        if isinstance(value, IntervalSweep) and value.start is not None and value.end is not None:
            log = "log" in value.tags
            if isinstance(value.start, int) and isinstance(value.end, int):
                return IntDistribution(value.start, value.end, log=log)
            return FloatDistribution(value.start, value.end, log=log)
        if isinstance(value, RangeSweep) and all(
            isinstance(n, int) for n in (value.start, value.stop, value.step)
        ):
            numbers = range(int(value.start or 0), int(value.stop or 0), int(value.step))
            return IntDistribution(min(numbers), max(numbers), step=abs(numbers.step))
    except ValueError as error:
        raise InputError(f"`{override.input_line}` cannot be drawn from: {error}") from None
    return CategoricalDistribution([str(text) for text in override.sweep_string_iterator()])


def _can_draw(drawn_from: BaseDistribution, value: Any) -> bool:
    """Return whether the distribution contains a value."""
    if isinstance(drawn_from, CategoricalDistribution):
        return value in drawn_from.choices
    assert isinstance(drawn_from, (IntDistribution, FloatDistribution))
    kind = int if isinstance(drawn_from, IntDistribution) else float
    if type(value) is not kind or not drawn_from.low <= value <= drawn_from.high:
        return False
    return kind is float or (value - drawn_from.low) % (drawn_from.step or 1) == 0


def _consecutive(trials: Sequence[FrozenTrial]) -> list[list[FrozenTrial]]:
    """Group trials into runs of consecutive numbers: a launcher numbers the jobs of a batch in sequence."""
    runs: list[list[FrozenTrial]] = []
    for trial in sorted(trials, key=lambda trial: trial.number):
        if runs and runs[-1][-1].number == trial.number - 1:
            runs[-1].append(trial)
        else:
            runs.append([trial])
    return runs


def _owners_folder(sweep: Path, owner: str) -> Path:
    """Create the folder that a process keeps locked while it runs, visible to all machines."""
    folder = sweep / _OWNERS / owner
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _is_gone(sweep: Path, owner: str) -> bool:
    try:
        with hold(_owners_folder(sweep, owner)):
            return True
    except InputError:  # its owner holds the lock
        return False
