"""Settings are obeyed or refused, nothing trained is nothing found, and what diverged leaves no model."""

import pytest

from nas_lightning.training.retrain import Retrain
from tests.cli.conftest import TINY_DATA, TINY_NETWORK, TINY_SEARCH

QUIET = "callbacks.history.figures=false"
SEARCH = ("search", *TINY_SEARCH, "strategy=darts", "trainer.max_epochs=2", QUIET)
ROUNDS = ("search", *TINY_SEARCH, "trainer.max_epochs=0", QUIET)
TRAIN = ("train", *TINY_DATA, *TINY_NETWORK, "trainer.max_epochs=2", "genotype=nasbench201_best")
ENSEMBLE = ("ensemble=deep", "ensemble.count=2")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*SEARCH, "trainer.logger=false"), "expected logger=none"),
        ((*SEARCH, "trainer.default_root_dir=x"), "expected run=FOLDER"),
        ((*SEARCH, "trainer.min_epochs=5"), "expected at most trainer.max_epochs"),
        ((*SEARCH, "trainer.overfit_batches=1"), "expected dataset.subset=COUNT"),
        ((*TRAIN, "trainer.overfit_batches=1"), "expected dataset.subset=COUNT"),
        ((*SEARCH, "trainer.use_distributed_sampler=true"), "loaders divide batches"),
        ((*SEARCH, "trainer.reload_dataloaders_every_n_epochs=1"), "loaders make each epoch anew"),
        ((*SEARCH, "trainer.limit_predict_batches=1"), "nothing is predicted"),
        ((*SEARCH, "trainer.model_registry=x"), "there is no registry"),
        ((*SEARCH, "trainer.gradient_clip_algorithm=value"), "expected trainer.gradient_clip_val beside it"),
        ((*SEARCH, "trainer.val_check_interval=1"), "a search has no validation"),
        ((*SEARCH, "trainer.check_val_every_n_epoch=2"), "a search has no validation"),
        ((*SEARCH, "trainer.limit_val_batches=1"), "a search has no validation"),
        ((*SEARCH, "trainer.num_sanity_val_steps=1"), "a search has no validation"),
        ((*SEARCH, "+genotype.x=1"), "expected a setting that exists"),
        ((*TRAIN, "+genotype.x=1"), "expected a setting of the genotype"),
        ((*SEARCH, "hydra.sweeper=foo"), "expected -m for the settings of a sweep"),
        ((*SEARCH, "-m", "seed=0,1", "hydra.sweeper=foo"), "expected settings of Hydra that it takes"),
        ((*SEARCH, "-m", "seed=0,1", "hydra.sweeper=null"), "expected a sweeper"),
        ((*SEARCH, "callbacks.divergence.monitor=nope"), "expected the name of a metric ("),
        ((*TRAIN, "callbacks.divergence.monitor=nope"), "expected the name of a metric ("),
        ((*TRAIN, "callbacks.best.monitor=nope"), "expected a metric of the validation"),
        ((*SEARCH, "strategy.warmup_epochs=2"), "expected fewer epochs of warm-up than the run has"),
        ((*TRAIN, "retrain.warmup_epochs=2"), "expected fewer warm-up epochs"),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(words, message, command, tmp_path):
    assert message in refusal(command, words)


@pytest.mark.parametrize(
    "words",
    [
        *((*ROUNDS, f"strategy={name}") for name in ("darts", "nasi", "evolution", "hnas", "metric_search")),
        (*TRAIN, "trainer.max_epochs=0"),
        *((*base, f"trainer.limit_train_batches={share}") for base in (SEARCH, TRAIN) for share in (0, 0.01)),
        *((*base, "trainer.max_time='00:00:00:00'") for base in (SEARCH, TRAIN)),
        *((*base, "trainer.max_steps=0") for base in (SEARCH, TRAIN)),
    ],
)
def test_nothing_trained_is_nothing_found(words, command, tmp_path):
    refusal(command, words)
    assert not [*tmp_path.rglob("genotype.json"), *tmp_path.rglob("model.safetensors")]


def test_a_search_that_needs_no_rounds_has_none(command):
    assert command(*ROUNDS, "strategy=random", "run=run").code == 0


@pytest.mark.parametrize("words", [(*TRAIN, "retrain.lr=1e30"), (*TRAIN, *ENSEMBLE, "retrain.lr=1e30")])
def test_what_diverges_leaves_no_model(words, command, tmp_path):
    message = refusal(command, words)
    assert "expected finite" in message
    assert "lower the learning rate" in message
    assert "epoch 0, step" in message
    assert not [*tmp_path.rglob("model.safetensors"), *tmp_path.rglob("summary.json")]


def test_a_candidate_that_diverges_is_worst_and_not_the_end(command, tmp_path, monkeypatch):
    step = Retrain.training_step

    def poison(self, *args):
        if len([*tmp_path.glob("run/candidate_*")]) == 1:
            for parameter in self.parameters():
                parameter.data.fill_(float("nan"))
        return step(self, *args)

    pool = ("ensemble=nes_rs", "ensemble.pool=3", "ensemble.size=2", "ensemble.space=nasbench201")
    argv = ("train", *TINY_DATA, *TINY_NETWORK, "trainer.max_epochs=1", "dataset.val_fraction=0.25", *pool)
    monkeypatch.setattr(Retrain, "training_step", poison)
    outcome = command(*argv, "run=run")
    assert (outcome.code, outcome.err) == (0, "")
    table = (tmp_path / "run" / "tables" / "pool.md").read_text()
    assert "candidate 1" not in table
    assert "candidate 3" in table
    assert not [*(tmp_path / "run" / "candidate_1").glob("model*")]
    assert "expected finite" in (tmp_path / "run" / "candidate_1" / "summary.json").read_text()


def refusal(command, words) -> str:
    code, out, err = command(*words, "run=run")
    assert code == 1
    (line,) = err.splitlines()
    assert line.startswith("error: expected ")
    assert "⇒" not in out  # an architecture
    return line
