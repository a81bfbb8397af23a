"""Jobs without a command line: parts in, facts out, the folder as the scripts leave it."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import pytorch_lightning as pl

import nas_lightning
from nas_lightning.data import Fake, SearchData
from nas_lightning.genotype import read_genotypes
from nas_lightning.jobs import Parts, ensemble, search, study, train
from nas_lightning.models.ensemble_plans import SeveralSeeds
from nas_lightning.runs.facts import Findings, RunFacts
from nas_lightning.runs.folder import RunFolder
from nas_lightning.spaces import NasBench201
from nas_lightning.strategies import Darts, RandomSearch
from nas_lightning.studies.base import Study
from nas_lightning.training.retrain import Retrain
from tests.cli.conftest import TINY_SEARCH, command  # noqa: F401

SIZES = {"channels": 4, "cells": 1}
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
RECIPE = partial(Retrain, warmup_epochs=0, drop_path=0.0)


def images() -> Fake:
    return Fake(shape=(1, 8, 8), train_size=32, test_size=16, batch_size=8)


def parts_in(folder: Path, seed: int = 0) -> Parts:
    return Parts(NasBench201(), SearchData(images()), folder, seed, SIZES, SIZES)


def trainer(folder: Path, epochs: int = 1) -> pl.Trainer:
    return pl.Trainer(max_epochs=epochs, default_root_dir=folder, accelerator="cpu", **QUIET)


def train_once(genotype, folder: Path, seed: int = 0) -> RunFacts:
    pl.seed_everything(seed, verbose=False)
    parts = Parts(NasBench201(), images(), folder, seed, network_sizes=SIZES, recipe=RECIPE)
    return train(genotype, parts, trainer(folder))


def test_what_a_search_finds_is_trained(tmp_path):
    facts = search(Darts, parts_in(tmp_path / "a", seed=2), trainer(tmp_path / "a"))
    assert (facts.kind, facts.strategy, facts.space, facts.seed) == ("search", "Darts", "nasbench201", 2)
    assert 0 <= facts.metrics["valid_accuracy"] <= 1
    assert RunFolder(tmp_path / "a").facts == facts
    (genotype,) = read_genotypes(tmp_path / "a")
    trained = train_once(genotype, tmp_path / "b")
    assert trained.kind == "training"
    assert trained.params == sum(p.numel() for p in nas_lightning.load(tmp_path / "b").parameters())
    assert 0 <= trained.metrics["test_accuracy"] <= 1


@pytest.mark.filterwarnings("ignore:`LightningModule.configure_optimizers` returned `None`")
def test_a_search_in_python_is_the_one_of_the_command(command, tmp_path):  # noqa: F811
    code, _, err = command("search", *TINY_SEARCH, "strategy=random", "strategy.count=3", "seed=7", "run=a")
    assert (code, err) == (0, "")
    search(partial(RandomSearch, count=3), parts_in(tmp_path / "b", seed=7), trainer(tmp_path / "b", 0))
    here, there = (RunFolder(tmp_path / name) for name in ("a", "b"))
    assert here.genotypes == there.genotypes
    assert here.facts.params == there.facts.params


def test_an_ensemble_trains_only_the_members_that_are_not_there(tmp_path):
    space, trained = NasBench201(), []
    genotype = space.parse("|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|skip_connect~2|")

    def train_member(member, folder, name):
        trained.append(name)
        train_once(genotype, folder, member.further_seed)

    for _ in range(2):
        facts = ensemble(SeveralSeeds(2), train_member, images(), tmp_path)
    assert trained == ["Member 1 of 2", "Member 2 of 2"]
    assert (facts.kind, facts.members) == ("ensemble", 2)
    assert facts.metrics["test_accuracy"] == pytest.approx(1 - facts.metrics["test_error"])


class Counting(Study):
    """How many operations the space has."""

    def run(self, space, seed):
        return Findings([], numbers={"ops": len(space.groups["cell"].ops), "seed": seed})


def test_a_study_is_given_what_it_names(tmp_path):
    facts = study(Counting(), parts_in(tmp_path, seed=5))
    assert (facts.kind, facts.study) == ("study", "Counting")
    assert facts.metrics == {"ops": 5, "seed": 5}


def test_a_stopwatch_of_the_users_own_counts(tmp_path):
    """Seconds are those of a run's all starts, which the callback keeps in the checkpoint."""
    from nas_lightning.callbacks.progress import Stopwatch
    from nas_lightning.jobs.measurements import stopwatch_of

    own = Stopwatch()
    watched = pl.Trainer(max_epochs=1, callbacks=[own], accelerator="cpu", **QUIET)
    assert stopwatch_of(watched) is own
    bare = trainer(tmp_path)
    assert stopwatch_of(bare) is stopwatch_of(bare)


def test_jobs_need_no_hydra():
    code = "import sys, nas_lightning.jobs\nprint(*{'hydra', 'omegaconf'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
