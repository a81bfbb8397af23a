"""One composition a command: counted at Hydra's own loader, whoever asks it."""

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl

from tests.cli.conftest import TINY_DATA, TINY_NETWORK, TINY_SEARCH

SEARCH = (*TINY_SEARCH, "strategy=random", "callbacks.history.figures=false")
TRAIN = (*TINY_DATA, *TINY_NETWORK, "genotype=nasbench201_best", "trainer.max_epochs=1")


@pytest.fixture
def compositions(monkeypatch) -> list[str]:
    """What Hydra's loader has composed, by the name of the configuration."""
    composed: list[str] = []
    compose = ConfigLoaderImpl.load_configuration

    def count(self, config_name, *args, **options):
        composed.append(config_name)
        return compose(self, config_name, *args, **options)

    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", count)
    return composed


@pytest.mark.parametrize(
    "words",
    [(), ("trainer.log_every_n_steps=5",), ("seed=3", "run=a"), ("logger=none", "trainer.max_epochs=0")],
)
def test_a_search_is_composed_once(command, compositions, words):
    assert command("search", *SEARCH, *words).code == 0
    assert compositions == ["search"]


def test_what_is_only_printed_is_composed_once(command, compositions):
    assert command("search", *SEARCH, "--cfg", "job").code == 0
    assert compositions == ["search"]


def test_a_training_and_its_resume_are_composed_once_each(command, compositions):
    """The space of its genotype is an option of its own, which the command has not chosen."""
    assert command("train", *TRAIN, "run=a").code == 0
    assert compositions == ["train", "space/nasbench201"]
    compositions.clear()
    code, _, err = command("train", "resume=a")
    assert code == 0, err
    assert compositions == ["train", "space/nasbench201"]


def test_a_resume_with_a_word_more_is_composed_once(command, compositions):
    assert command("search", *SEARCH, "run=a").code == 0
    compositions.clear()
    code, _, err = command(
        "search", "resume=a", "trainer.log_every_n_steps=3", "callbacks.history.figures=true"
    )
    assert code == 0, err
    assert compositions == ["search"]


def test_a_sweep_is_composed_once_a_job_besides_its_check(command, compositions):
    """The check composes each combination of groups, before a folder is made; the whole names that folder."""
    words = ("-m", *TINY_SEARCH, "strategy=random,random_ws", "trainer.max_epochs=1", "run=s")
    code, _, err = command("search", *words, "callbacks.history.figures=false")
    assert code == 0, err
    check, whole, jobs = 2, 1, 2
    assert compositions == ["search"] * (check + whole + jobs)
    compositions.clear()
    code, _, err = command("search", "-m", *SEARCH, "seed=0,1,2", "run=t")
    assert code == 0, err
    check, whole, jobs = 1, 1, 3
    assert compositions == ["search"] * (check + whole + jobs)


def test_a_sweep_of_choices_that_the_default_has_not_runs(command, compositions, tmp_path):
    """Hydra composes the whole with the default strategy; then it is composed as the first job's."""
    words = (*TINY_SEARCH, "strategy=evolution,optuna", "strategy.evaluation=none", "trainer.max_epochs=1")
    code, _, err = command("search", "-m", *words, "callbacks.history.figures=false", "run=s")
    assert (code, err) == (0, "")
    check, whole, jobs = 2, 2, 2
    assert compositions == ["search"] * (check + whole + jobs)
    assert (tmp_path / "s" / "1" / "genotype.json").is_file()
    compositions.clear()
    code, out, err = command("search", "-m", "resume=s")
    assert (code, err) == (0, "")
    assert out.startswith("Going on with the sweep")


def test_a_mistake_that_hydra_trips_over_is_one_line(command):
    code, _, err = command("search", *SEARCH, "callbacks=null")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert err.startswith(
        "error: expected settings that fit together: Config group override must be a string"
    )
