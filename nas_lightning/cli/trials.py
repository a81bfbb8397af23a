"""The jobs of a sweep as Optuna's trials: what varies is drawn, one job's outcome after another's.

A trial's number is its job's. The journal in the sweep's folder knows all of them: who types the command once
more, on this machine or another, goes on with it. A trial whose process is gone is run again, in its folder.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import optuna
import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf
from optuna.trial import FrozenTrial, TrialState

from nas_lightning.cli.trial_outcomes import check_objectives, directions_of, numbers_of, values_of
from nas_lightning.cli.trial_space import check_drawn, distribution
from nas_lightning.errors import InputError, near_match
from nas_lightning.runs.folder import JOURNAL, PRUNED, STUDY, open_storage
from nas_lightning.utils.files import hold, turn, write_whole
from nas_lightning.validation import DISTINCT, Seed, check_argument, entries

WHERE = "hydra.sweeper"
Objectives = Annotated[Sequence[str], entries(1), DISTINCT] | None
RESULTS = "optimization_results.yaml"  # as Hydra's own plugin for Optuna calls it
_OWNER, _OWNERS = "owner", ".optuna"
_PLAIN = re.compile(r"\w[\w.-]{,199}")  # what becomes a folder's name
SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}


class Trials:
    """A sweep's trials.

    Args:
        config: the sweep's, with Hydra's part.
        words: what was typed; what varies among it is drawn.
        loader: knows the options of groups.
        sampler: one of `SAMPLERS`.
        n_trials: in all.
        n_jobs: launched together.
        objectives: of a run's numbers; None: its `objective`.
        directions: one an objective; None: what their names say.
        seed: of the sampler.
    """

    def __init__(
        self,
        config: DictConfig,
        words: Sequence[str],
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
            expected = f"expected a sampler ({near_match(sampler, SAMPLERS)})"
            raise InputError(expected, got=sampler, where=f"{WHERE}.sampler")
        for name, count in (("n_trials", n_trials), ("n_jobs", n_jobs)):
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise InputError("expected a whole number ≥ 1", got=count, where=f"{WHERE}.{name}")
        check_argument("seed", seed, Seed, f"{WHERE}.seed")
        check_argument("objectives", objectives, Objectives, f"{WHERE}.objectives")
        self.config, self.n_trials, self.n_jobs = config, n_trials, n_jobs
        self.folder = Path(config.hydra.sweep.dir)
        self.objectives = [*objectives] if objectives else [str(config.objective)]
        self.directions = directions_of(self.objectives, directions, f"{WHERE}.directions")
        overrides = OverridesParser.create(loader).parse_overrides([*words])
        self.space = {o.get_key_element(): distribution(o) for o in overrides if o.is_sweep_override()}
        if not self.space:
            raise InputError(
                "expected something that varies, such as strategy.lr=interval(0.01,0.1)", where="-m"
            )
        self.chooses = any(map(loader.get_group_options, self.space))  # such as strategies: unlike jobs
        self.fixed = [str(o.input_line) for o in overrides if not o.is_sweep_override()]
        self.make_sampler, self.seed = SAMPLERS[sampler], seed
        machine = re.sub(r"[^\w.-]", "_", socket.gethostname())
        self.owner = f"on_{machine}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def run(self, launcher: Launcher, check: Callable[[list[list[str]]], None]) -> list[Any]:
        """Launch trials until there are as many as are wanted; returns what Hydra is told of the jobs."""
        returns: list[Any] = []
        OmegaConf.save(self.config, self.folder / "multirun.yaml")
        study = self._study()
        with ExitStack() as stack:
            stack.enter_context(hold(_owners_folder(self.folder, self.owner)))
            while trials := self._next(study):
                check([self._words(trial) for trial in trials])
                for together in _runs_of_numbers(trials):
                    batch = [self._words(trial) for trial in together]
                    returns += launcher.launch(batch, initial_job_idx=together[0].number)
                    self._tell(study, together)
        self._write_best(study)
        return returns

    def _study(self) -> optuna.Study:
        try:
            study = optuna.create_study(
                study_name=STUDY,
                storage=open_storage(self.folder),
                directions=self.directions,
                load_if_exists=True,
            )
        except ValueError as error:  # other directions than those that are there
            raise InputError(
                f"expected the objectives of the sweep that is there: {error}", where=WHERE
            ) from None
        return study

    def _next(self, study: optuna.Study) -> list[FrozenTrial]:
        """What to launch, which no other process takes meanwhile."""
        with turn(self.folder / _OWNERS):
            return self._stopped(study) or self._drawn(study)

    def _stopped(self, study: optuna.Study) -> list[FrozenTrial]:
        """Trials whose processes are gone: this one's from now on, which go on in their folders."""
        running = [trial for trial in self._trials(study) if trial.state == TrialState.RUNNING]
        others = [trial for trial in running if trial.user_attrs[_OWNER] != self.owner]
        gone = [trial for trial in others if _is_gone(self.folder, trial.user_attrs[_OWNER])]
        for trial in gone:
            study._storage.set_trial_user_attr(trial._trial_id, _OWNER, self.owner)
        return gone

    def _drawn(self, study: optuna.Study) -> list[FrozenTrial]:
        """The next trials, each from a sampler of its own: it does not matter who has drawn those before.

        Drawn beside the journal, which knows all of a trial then or, after a kill, nothing.
        """
        drawn: list[FrozenTrial] = []
        while len(drawn) < self.n_jobs and (count := len(trials := self._trials(study))) < self.n_trials:
            sampler = self.make_sampler(self.seed + count)
            draft = optuna.create_study(directions=self.directions, sampler=sampler)
            draft.add_trials(trials)
            draft.ask(self.space).set_user_attr(_OWNER, self.owner)
            study.add_trial(draft.get_trials(deepcopy=False)[count])
            drawn.append(self._trials(study)[count])
        return drawn

    def _trials(self, study: optuna.Study) -> list[FrozenTrial]:
        """All that the journal knows; raises where it is not this sweep that has drawn them."""
        trials = study.get_trials(deepcopy=False)
        for trial in trials:
            where = f"{self.folder / JOURNAL}, trial {trial.number}"
            check_drawn(trial, self.space, where)
            owner = trial.user_attrs.get(_OWNER)
            if not isinstance(owner, str) or not _PLAIN.fullmatch(owner):
                raise InputError("expected a process with a plain name", got=owner, where=where)
        return trials

    def _words(self, trial: FrozenTrial) -> list[str]:
        return [*self.fixed, *(f"{name}={value}" for name, value in trial.params.items())]

    def _tell(self, study: optuna.Study, trials: Sequence[FrozenTrial]) -> None:
        """What the jobs have come to, as their folders say; one without the objective has failed."""
        without = []
        for trial in trials:
            stored = study.get_trials(deepcopy=False)[trial.number]
            numbers = numbers_of(self.folder, trial.number, self.config)
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
            check_objectives(numbers, self.objectives, alike=not (self.chooses or complete))

    def _write_best(self, study: optuna.Study) -> None:
        """The best trial, or those that no other is better than in everything."""
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        several = len(self.objectives) > 1
        best = [] if not complete else study.best_trials if several else [study.best_trial]
        solutions = [{"job": t.number, "params": dict(t.params), "values": list(t.values)} for t in best]
        content = {"name": "optuna", "objectives": self.objectives, "solutions": solutions}
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        path = write_whole(self.folder / RESULTS, text)
        for trial in best:
            pairs = zip(self.objectives, trial.values, strict=True)
            settings = " ".join(f"{name}={value}" for name, value in trial.params.items())
            said = ", ".join(f"{name} {value:.4g}" for name, value in pairs)
            print(f"best: job {trial.number}, {said}: {settings}")
        print(path)


def _runs_of_numbers(trials: Sequence[FrozenTrial]) -> list[list[FrozenTrial]]:
    """Those with one number after the other, which a launcher takes together."""
    runs: list[list[FrozenTrial]] = []
    for trial in sorted(trials, key=lambda trial: trial.number):
        if runs and runs[-1][-1].number == trial.number - 1:
            runs[-1].append(trial)
        else:
            runs.append([trial])
    return runs


def _owners_folder(sweep: Path, owner: str) -> Path:
    """A folder that a process locks while it is there, whatever machine asks."""
    folder = sweep / _OWNERS / owner
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _is_gone(sweep: Path, owner: str) -> bool:
    try:
        with hold(_owners_folder(sweep, owner)):
            return True
    except InputError:  # whose lock it is, is at work
        return False
