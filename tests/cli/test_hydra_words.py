"""What Hydra's users type: plugins beside ordinary settings, every syntax of a sweep, modes, experiments.

Seen red on version 0.1: `hydra/launcher=joblib` beside a trainer's setting was no setting that exists;
intervals, patterns and `hydra.sweeper.params` were tracebacks; `hydra.mode=MULTIRUN` was refused for commas.
"""

import pytest
import yaml
from hydra.types import RunMode

from nas_lightning.cli.composer import Composer
from nas_lightning.cli.composition import check_command
from nas_lightning.cli.words import expand_shorthand
from nas_lightning.errors import InputError
from nas_lightning.runs.command import Command
from nas_lightning.runs.folder import RunFolder
from tests.cli.conftest import TINY_SEARCH

WIDE = {"defaults": [{"override /hydra/launcher": "joblib"}], "hydra": {"launcher": {"n_jobs": 3}}}
SEEDS = {"hydra": {"mode": "MULTIRUN", "sweeper": {"params": {"seed": "0,1"}}}}
CLUSTER = {"defaults": [{"override /hydra/launcher": "rq"}]}
EXPERIMENTS = {"wide": WIDE, "seeds": SEEDS, "cluster": CLUSTER}
JOBLIB = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"


@pytest.fixture
def folder(tmp_path):
    """Configurations of a user's own."""
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    for name, content in EXPERIMENTS.items():
        file = tmp_path / "conf" / "experiment" / f"{name}.yaml"
        file.write_text(f"# @package _global_\n{yaml.safe_dump(content)}")
    return tmp_path / "conf"


@pytest.fixture
def check(folder):
    """`check("seed=0,1", …)`: the configuration of a sweep with these words."""

    def run(*typed, sweep=True):
        words = tuple(expand_shorthand("search", word, sweep) for word in typed)
        with Composer("search", [folder]) as composer:
            return check_command(Command("search", words, (folder,), sweep), composer)

    return run


@pytest.mark.parametrize("besides", [(), ("trainer.max_epochs=1",), ("+callbacks.x._target_=m.C",)])
def test_a_plugin_is_chosen_beside_any_setting(check, besides):
    config = check("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=0,1", *besides)
    assert (config.hydra.launcher._target_, config.hydra.launcher.n_jobs) == (JOBLIB, 2)


def test_an_experiment_of_one_s_own_chooses_the_launcher(check):
    config = check("experiment=wide", "seed=0,1", "trainer.max_epochs=1")
    assert (config.hydra.launcher._target_, config.hydra.launcher.n_jobs) == (JOBLIB, 3)


@pytest.mark.parametrize(
    "word",
    [
        *("seed=range(0,3)", "seed=choice(0,1)", "seed=shuffle(range(0,3))", "seed=sort(3,1,2)"),
        *("space=glob(nasbench*)", "strategy=glob([gd*,fair_d*],exclude=fair_n*)", "space=choice(darts,mlp)"),
        *("hydra.sweeper.params.seed=0,1", "+hydra.sweeper.params.seed='0,1'"),
    ],
)
def test_every_syntax_of_a_sweep_is_taken(check, word):
    assert check(word).hydra.mode == RunMode.MULTIRUN


TWO = "strategy=evolution,optuna"  # of which the default strategy has no setting


@pytest.mark.parametrize(
    "words",
    [
        *((TWO, "strategy.evaluation=training"), ("strategy.evaluation=training", TWO)),
        *((TWO, "~strategy.seed"), (TWO, "strategy.epochs=1,2", "seed=0,1")),
        ("sweeper=optuna", TWO, "strategy.lr=interval(0.1,1)"),
        *(("strategy=glob(ev*)", "strategy.sample=2"), ("logger=wandb,wandb", "logger.wandb.project=p")),
        ("space=darts,darts_nasi", "strategy=random", "space.nodes=2"),
    ],
)
def test_words_are_judged_with_the_choices_of_each_job(check, words):
    config = check(*words)
    assert config.hydra.mode == RunMode.MULTIRUN
    assert [*config.hydra.overrides.task] == [*words]


@pytest.mark.parametrize(
    ("words", "job", "setting"),
    [
        (("strategy=darts,random", "strategy.lr=0.1"), "strategy=random", "strategy.lr"),
        (("strategy=random,darts", "strategy.lr=0.1,0.2"), "strategy=random", "strategy.lr"),
        (("logger=wandb,csv", "logger.wandb.project=p"), "logger=csv", "logger.wandb.project"),
        (("space=darts,nasbench201", "strategy=random", "space.nodes=2"), "space=nasbench201", "space.nodes"),
        ((TWO, "strategy.population=5"), "strategy=optuna", "strategy.population"),
    ],
)
def test_a_word_that_one_job_has_no_place_for_names_that_job(check, words, job, setting):
    with pytest.raises(InputError) as error:
        check(*words)
    assert f"got '{setting}' (in the command line with {job}" in str(error.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("hydra/launcher=joblob", "seed=0,1"), "did you mean 'joblib'"),
        (("hydra/launcher=rq", "trainer.max_epochs=1"), "pip install hydra-rq-launcher"),
        (("hydra/sweeper=ax", "seed=0,1"), "pip install hydra-ax-sweeper"),
        (("hydra/job_logging=disbled",), "did you mean 'disabled'"),
        (("experiment=cluster", "seed=0,1"), "pip install hydra-rq-launcher"),
        (("hydra/launcher=joblib", "trainer.max_epochs=1", "supernet.chanels=3"), "'supernet.channels'"),
        (("hydra/launcher=joblib", "hydra.launcher.njobs=2"), "'hydra.launcher.n_jobs'"),
        (("+hydra.sweeper.params.sede=0,1",), "did you mean 'seed'"),
        (("strategy.lr=interval(0.01,1)",), "a sweeper that draws"),
        (("strategy.lr=tag(log,interval(0.01,1))",), "a sweeper that draws"),
        (("space=glob(nothing*)",), "expected a sweep over something"),
        (("hydra/launcher=basic,joblib",), "Sweeping over Hydra's configuration"),
    ],
)
def test_what_cannot_be_is_said_of_the_word_at_fault(check, words, message):
    with pytest.raises(InputError) as error:
        check(*words)
    assert message in str(error.value)


def test_a_pattern_leaves_out_what_is_a_part_of_others():
    with Composer("search") as composer:
        names = composer.loader.get_group_options("strategy")
    assert "darts" in names
    assert not [name for name in names if name.startswith("_")]


def test_a_configuration_that_is_a_sweep_runs_as_one_in_the_folder_that_was_typed(command, folder, tmp_path):
    quick = ("strategy=random", "trainer.max_epochs=1", "callbacks.history.figures=false")
    argv = ("--config-dir", str(folder), "experiment=seeds", *TINY_SEARCH, *quick, "run=here")
    assert command("search", *argv).code == 0
    records = [RunFolder(tmp_path / "here" / job).record for job in "01"]
    seeds = [record.config["seed"] for record in records]
    assert seeds == [0, 1]


def test_the_mode_is_typed_in_place_of_the_flag_and_not_against_it(command, tmp_path):
    words = (*TINY_SEARCH, "strategy=random", "trainer.max_epochs=1", "run=here", "--cfg=job")
    assert command("search", "hydra.mode=MULTIRUN", "seed=0,1", *words).code == 0
    outcome = command("search", "-m", "hydra.mode=RUN", "seed=0,1", *words)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == "error: expected hydra.mode=MULTIRUN beside -m, got 'RUN' (in hydra.mode)\n"
