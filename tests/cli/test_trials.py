"""Optuna sweeps: killed, shared, with failures, with several objectives, and with pruning."""

import json
import math
import subprocess
from pathlib import Path

import optuna
import pytest
import pytorch_lightning as pl
import yaml
from pytorch_lightning.demos.boring_classes import BoringModel

from nas_lightning.callbacks import TrialPruning
from nas_lightning.cli.job import Job
from nas_lightning.errors import InputError
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.folder import JOURNAL, PRUNED, STUDY, RunFolder, open_storage, trial_of
from nas_lightning.runs.record import Record
from tests.cli.conftest import TINY_SEARCH, run_process

BEST = 0.02
SWEEP = (
    *("-m", "sweeper=optuna", "strategy=darts", "strategy.lr=tag(log,interval(0.001,1))"),
    *("strategy.momentum=choice(0.5,0.9)", "run=sweep"),
)


class Stop(KeyboardInterrupt):
    """Interrupts the sweep."""


def jobs(*, stop_at=None, fail_at=()):
    """A fast job whose accuracy is best at `BEST`, and whose network grows with the rate."""

    def run(cfg):
        job = Job.start(cfg)
        number = job.record.hydra["job"]["num"]
        job.write_record()
        if number == stop_at:
            raise Stop
        accuracy = 1 - 0.1 * abs(math.log10(cfg.strategy.lr / BEST)) - (cfg.strategy.momentum != 0.9) * 0.2
        error = "out of memory" if number in fail_at else None
        metrics = {} if error else {"valid_accuracy": accuracy}
        params = round(1e6 * cfg.strategy.lr)
        job.folder.finish(
            RunFacts("search", 0, metrics, 1.0, overrides=job.overrides, params=params, error=error)
        )
        return None

    return run


@pytest.fixture
def sweep(command, monkeypatch, tmp_path):
    """`sweep("hydra.sweeper.n_trials=4", stop_at=2)`: run a sweep; return its output and trials."""

    def run(*argv, folder="sweep", **options):
        monkeypatch.setattr("nas_lightning.cli.main.run_job", jobs(**options))
        outcome = command("search", *SWEEP[:-1], f"run={folder}", *argv)
        study = optuna.load_study(study_name=STUDY, storage=open_storage(tmp_path / folder))
        return outcome, study.trials

    return run


def drawn(trials):
    return [(trial.params, trial.state.name, trial.values) for trial in trials]


@pytest.mark.parametrize(
    ("sampler", "count"),
    [
        ("random", 4),
        *(pytest.param(name, 13, marks=pytest.mark.slow) for name in ("tpe", "gp", "nsga2")),
    ],
)
def test_resumed_sweep_draws_the_same_trials(sampler, count, sweep):
    argv = (f"hydra.sweeper.n_trials={count}", f"hydra.sweeper.sampler={sampler}")
    _, complete = sweep(*argv, folder="complete")
    (code, *_), before = sweep(*argv, stop_at=count - 2)
    assert (code, [trial.state.name for trial in before][-1]) == (130, "RUNNING")
    (code, _, err), after = sweep(*argv)
    assert (code, err) == (0, "")
    assert drawn(after) == drawn(complete)
    assert len({trial.params["strategy.lr"] for trial in after}) == count


@pytest.mark.slow
def test_sweep_approaches_the_optimum(sweep, tmp_path):
    (code, out, _), trials = sweep("hydra.sweeper.n_trials=16", "hydra.sweeper.sampler=gp")
    assert code == 0
    found = yaml.safe_load((tmp_path / "sweep" / "optimization_results.yaml").read_text())
    (best,) = found["solutions"]
    assert best["values"] == [max(trial.value for trial in trials)]
    assert best["params"]["strategy.momentum"] == "0.9"
    assert abs(math.log10(best["params"]["strategy.lr"] / BEST)) < 0.3  # of a range of 3
    assert f"best: job {best['job']}, valid_accuracy " in out


def test_sweep_resumes_from_its_folder(sweep, command, monkeypatch, tmp_path):
    """The number of trials and the sampler are restored."""
    argv = ("hydra.sweeper.n_trials=2", "hydra.sweeper.sampler=random", "hydra.sweeper.seed=7")
    _, complete = sweep(*argv, folder="complete")
    (code, out, _), _ = sweep(*argv, stop_at=1)
    assert (code, out.splitlines()[-1].endswith("nas-search -m resume=sweep")) == (130, True)
    monkeypatch.setattr("nas_lightning.cli.main.run_job", jobs())
    code, _, err = command("search", "-m", "resume=sweep")
    assert (code, err) == (0, "")
    study = optuna.load_study(study_name=STUDY, storage=open_storage(tmp_path / "sweep"))
    assert drawn(study.trials) == drawn(complete)


def test_failed_trials(sweep, tmp_path):
    (code, *_), trials = sweep("hydra.sweeper.n_trials=3", "hydra.sweeper.n_jobs=2", fail_at=(1,))
    assert code == 1
    assert [trial.state.name for trial in trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert "out of memory" in (tmp_path / "sweep" / "table.md").read_text()


def test_unknown_objective_ends_the_sweep_after_its_first_job(sweep, tmp_path):
    """Random search has no valid_accuracy: the sweep must end after the first job."""
    (code, _, err), trials = sweep("hydra.sweeper.n_trials=4", "objective=params_of")
    assert (code, [trial.state.name for trial in trials]) == (1, ["FAIL"])
    assert err == "error: No job has the objective `params_of` (did you mean 'params'?).\n"


@pytest.mark.parametrize(("override", "count"), [("seed=choice(0,1)", 1), ("space=choice(darts,mlp)", 2)])
def test_missing_objective_ends_a_sweep_of_one_space(override, count, sweep):
    """Another space may have the metric."""
    _, trials = sweep("hydra.sweeper.n_trials=2", "objective=test_accuracy", override)
    assert [trial.state.name for trial in trials] == ["FAIL"] * count


def test_finished_sweep_can_be_extended(sweep):
    _, before = sweep("hydra.sweeper.n_trials=1")
    (code, _, err), after = sweep("hydra.sweeper.n_trials=2")
    assert (code, err) == (0, "")
    assert drawn(after)[:1] == drawn(before)
    assert len(after) == 2


def test_pareto_front_of_several_objectives(sweep, tmp_path):
    argv = ("hydra.sweeper.objectives=[valid_accuracy,params]", "hydra.sweeper.sampler=nsga2")
    (code, *_), trials = sweep("hydra.sweeper.n_trials=5", *argv)
    assert code == 0
    values = [tuple(trial.values) for trial in trials]
    front = {v for v in values if not any(w[0] >= v[0] and w[1] <= v[1] and w != v for w in values)}
    found = yaml.safe_load((tmp_path / "sweep" / "optimization_results.yaml").read_text())
    assert {tuple(solution["values"]) for solution in found["solutions"]} == front


def test_jobs_in_custom_folders(sweep, tmp_path):
    (code, *_), trials = sweep("hydra.sweeper.n_trials=2", "hydra.sweep.subdir=job_${hydra.job.num}")
    assert (code, [trial.state.name for trial in trials]) == (0, ["COMPLETE", "COMPLETE"])
    assert (tmp_path / "sweep" / "job_1" / "summary.json").is_file()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("hydra.sweeper.sampler=tpp", "`hydra.sweeper.sampler` has no option `tpp` (did you mean 'tpe'?)"),
        ("hydra.sweeper.n_trials=0", "`hydra.sweeper.n_trials` must be at least 1, got 0"),
        ("hydra.sweeper.n_jobs=many", "`hydra.sweeper.n_jobs` must be at least 1, got many"),
        ("hydra.sweeper.directions=[up]", "must be maximize or minimize, 1 times, got [up]"),
        ("hydra.sweeper.objectives=[]", "`objectives` must have at least 1 item, got []"),
        ("hydra.sweeper.objectives=[params,params]", "`objectives` must have distinct entries"),
        ("hydra.sweeper.trials=3", "Did you mean `hydra.sweeper.n_trials`"),
        ("strategy.lr=tag(log,interval(0,1))", "cannot be drawn from"),
    ],
)
def test_invalid_sweeper_settings(override, message, command, monkeypatch, tmp_path):
    monkeypatch.setattr("nas_lightning.cli.main.run_job", jobs())
    code, _, err = command("search", *SWEEP, override)
    assert code == 1
    assert message in err
    assert len(err.splitlines()) == 1


def test_optuna_sweep_without_varied_settings(command, monkeypatch):
    monkeypatch.setattr("nas_lightning.cli.main.run_job", jobs())
    code, _, err = command("search", "-m", "sweeper=optuna", "strategy=darts", "run=sweep")
    assert code == 1
    assert "Nothing varies" in err


def rewrite(journal, change):
    """Change the lines of the journal, as a malicious user could."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    changed = [change(dict(line)) for line in lines]
    journal.write_text("".join(json.dumps(line) + "\n" for line in changed if line is not None))


def with_owner(name):
    return lambda line: {**line, "user_attrs": {"owner": name}} if "user_attrs" in line else line


def with_values(key, value):
    """Change the sampled rate of all trials; `key` is params or distributions."""

    def change(line):
        if key not in line:
            return line
        return {**line, key: {**line[key], "strategy.lr": value}}

    return change


def with_param(name):
    """Add a setting that the sweep does not vary."""

    def change(line):
        more = {key: {**line[key], name: line[key]["strategy.lr"]} for key in line.keys() & {*DRAWS}}
        return {**line, **more}

    return change


DRAWS = ("params", "distributions")
LINEAR = json.dumps({"name": "FloatDistribution", "attributes": {"low": 0.001, "high": 9.0}})


NAME, VALUE = "A process has a plain name, not ", "This sweep cannot draw strategy.lr="
JOURNAL_ERROR, OTHER_SPACE = "a journal of Optuna", "This sweep varies strategy.lr, "
MALICIOUS = [
    (with_owner("../../evil"), f"{NAME}'../../evil'"),
    (with_param("+supernet._target_"), OTHER_SPACE),
    (with_values("params", 7.0), f"{VALUE}7.0"),
    (lambda line: {"op_code": 99}, JOURNAL_ERROR),
    (with_owner("/evil"), f"{NAME}'/evil'"),
    (with_owner(["x"]), f"{NAME}['x']"),
    (with_owner("x" * 300), NAME),
    (with_values("distributions", LINEAR), OTHER_SPACE),
    (with_values("params", float("nan")), f"{VALUE}nan"),
    (with_values("params", "0.5 trainer.max_epochs=9"), VALUE),
    (with_values("params", [0.5]), f"{VALUE}[0.5]"),
    (with_values("params", "0.5"), f"{VALUE}'0.5'"),
    (with_values("distributions", "{"), JOURNAL_ERROR),
]


def test_malicious_journal(sweep, command, tmp_path):
    """A journal must add neither overrides nor folders outside of the sweep."""
    (code, *_), _ = sweep("hydra.sweeper.n_trials=3", stop_at=1)
    assert code == 130
    journal = tmp_path / "sweep" / JOURNAL
    original = journal.read_bytes()
    for change, message in MALICIOUS:
        journal.write_bytes(original)
        rewrite(journal, change)
        code, _, err = command("search", *SWEEP, "hydra.sweeper.n_trials=3")
        assert code == 1
        assert message in err
        assert len(err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["sweep"]
    assert not Path("/evil").exists()


def test_damaged_journal(sweep, command, tmp_path):
    sweep("hydra.sweeper.n_trials=1")
    for text in (b"{}\n", b"\xff\n", b"[]\n", b"3\n", b"[" * 100_000 + b"\n", b"x\nx\n"):
        (tmp_path / "sweep" / JOURNAL).write_bytes(text)
        code, _, err = command("search", *SWEEP, "hydra.sweeper.n_trials=2")
        assert code == 1
        assert JOURNAL_ERROR in err
        assert len(err.splitlines()) == 1


def test_incomplete_last_line_of_a_journal_is_dropped(sweep, tmp_path):
    """As after a full disk."""
    _, complete = sweep("hydra.sweeper.n_trials=2", folder="complete")
    sweep("hydra.sweeper.n_trials=1")
    with (tmp_path / "sweep" / JOURNAL).open("a") as file:
        file.write('{"op_code":4,"worker')
    (code, *_), after = sweep("hydra.sweeper.n_trials=2")
    assert (code, drawn(after)) == (0, drawn(complete))


@pytest.mark.slow
def test_lock_of_a_killed_process_expires(sweep, monkeypatch, tmp_path):
    """The lock expires after half a minute, since its holder may still run."""
    monkeypatch.setattr("optuna.storages.journal._file.time.monotonic", iter(range(0, 10**6, 20)).__next__)
    sweep("hydra.sweeper.n_trials=1")
    (tmp_path / "sweep" / f"{JOURNAL}.lock").touch()
    (code, *_), after = sweep("hydra.sweeper.n_trials=2")
    assert (code, len(after)) == (0, 2)


def test_journal_that_is_a_link(tmp_path):
    outside = tmp_path / "outside.log"
    outside.write_text("")
    folder = RunFolder(tmp_path / "sweep")
    folder.create(Record((), {}, {"mode": "MULTIRUN", "job": {"config_name": "search", "num": "???"}}))
    (folder.path / JOURNAL).symlink_to(outside)
    with pytest.raises(InputError, match="The path must be a file, not a link"):
        open_storage(folder.path)
    assert outside.read_text() == ""


@pytest.mark.parametrize(
    ("number", "message"),
    [("x", "`num` must be a valid integer"), (-1, "at least 0"), (7, "one of 1 trials")],
)
def test_invalid_trial_number(number, message, tmp_path):
    folder = RunFolder(tmp_path / "sweep")
    folder.create(Record((), {}, {"mode": "MULTIRUN", "job": {"config_name": "search", "num": "???"}}))
    optuna.create_study(study_name=STUDY, storage=open_storage(folder.path)).ask()
    run = RunFolder(folder.path / "0")
    run.create(Record((), {}, {"mode": "MULTIRUN", "job": {"config_name": "search", "num": number}}))
    with pytest.raises(InputError, match=message):
        trial_of(run.path, optuna.pruners.NopPruner())


class ConstantAccuracy(BoringModel):
    """A model whose accuracy is the same after every epoch."""

    def __init__(self, accuracy):
        super().__init__()
        self.accuracy = accuracy

    def training_step(self, batch, batch_idx):
        self.log("valid_accuracy", self.accuracy)
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize(("accuracy", "epochs"), [(0.1, 1), (0.9, 4)])
def test_pruning_of_an_inferior_trial(accuracy, epochs, tmp_path, capsys):
    folder = RunFolder(tmp_path / "sweep")
    folder.create(Record((), {}, {"mode": "MULTIRUN", "job": {"config_name": "search", "num": "???"}}))
    study = optuna.create_study(study_name=STUDY, storage=open_storage(folder.path), direction="maximize")
    for value in (0.5, 0.6):
        trial = study.ask()
        for epoch in range(4):
            trial.report(value, epoch)
        study.tell(trial, value)
    trial = study.ask()
    run = RunFolder(folder.path / "any_name")
    run.create(Record((), {}, {"mode": "MULTIRUN", "job": {"config_name": "search", "num": trial.number}}))
    pruning = TrialPruning(run.path, monitor="valid_accuracy", startup_trials=2)
    quiet = {f"enable_{what}": False for what in ("progress_bar", "model_summary", "checkpointing")}
    trainer = pl.Trainer(
        max_epochs=4, limit_train_batches=1, limit_val_batches=0, callbacks=[pruning], logger=False, **quiet
    )
    trainer.fit(ConstantAccuracy(accuracy))
    assert trainer.current_epoch == epochs
    seen = optuna.load_study(study_name=STUDY, storage=open_storage(folder.path)).trials[-1]
    assert (PRUNED in seen.user_attrs) == (epochs == 1)
    assert ("ended by Optuna" in capsys.readouterr().out) == (epochs == 1)


def test_pruning_outside_of_a_sweep(tmp_path):
    pruning = TrialPruning(tmp_path, monitor="no_such_metric")
    quiet = {f"enable_{what}": False for what in ("progress_bar", "model_summary", "checkpointing")}
    trainer = pl.Trainer(max_epochs=2, limit_train_batches=1, callbacks=[pruning], logger=False, **quiet)
    trainer.fit(ConstantAccuracy(0.5))
    assert trainer.current_epoch == 2


@pytest.mark.slow
def test_two_processes_share_a_sweep(tmp_path):
    argv = (
        *("-m", *TINY_SEARCH, "strategy=darts", "trainer.max_epochs=1", "callbacks.history.figures=false"),
        *(
            "sweeper=optuna",
            "strategy.lr=tag(log,interval(0.001,1))",
            "hydra.sweeper.n_trials=8",
            "run=sweep",
        ),
    )
    both = [run_process("search", *argv, cwd=tmp_path) for _ in range(2)]
    try:
        ends = [process.communicate(timeout=600) for process in both]
    except subprocess.TimeoutExpired:
        [process.kill() for process in both]
        raise
    assert [process.returncode for process in both] == [0, 0], ends
    trials = optuna.load_study(study_name=STUDY, storage=open_storage(tmp_path / "sweep")).trials
    assert len(trials) == 8  # one draws while the other waits
    assert {trial.state.name for trial in trials} == {"COMPLETE"}
    assert len({trial.user_attrs["owner"] for trial in trials}) == 2
    for trial in trials:
        summary = json.loads((tmp_path / "sweep" / str(trial.number) / "summary.json").read_text())
        assert summary["metrics"]["valid_accuracy"] == trial.value
        assert f"strategy.lr={trial.params['strategy.lr']}" in summary["overrides"]
    assert (tmp_path / "sweep" / JOURNAL).is_file()
