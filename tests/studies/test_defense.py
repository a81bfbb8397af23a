"""The study of attacks on an ensemble that was saved: its numbers against the same by hand."""

import csv
import io
import json

import pytest
import torch

from nas_lightning.data import Fake
from nas_lightning.models import Ensemble
from nas_lightning.models.attacks import Fgsm, loss_gradient
from nas_lightning.models.file import description
from nas_lightning.spaces import NasBench201
from tests.cli.conftest import TINY_DATA, TINY_NETWORK

FGSM = (*TINY_DATA, *TINY_NETWORK, "study=defense", "study.attacks=[fgsm]", "study.settings.fgsm.epsilon=0.1")


@pytest.fixture
def ensemble(tmp_path, generator):
    """Two networks for the tiny images, in a folder."""
    space, data = NasBench201(), Fake(shape=(1, 8, 8), train_size=32, test_size=16, batch_size=8)
    sizes = {"channels": 4, "cells": 1}
    members, known = [], []
    for _ in range(2):
        genotype = space.sample(generator)
        network = space.network(genotype, in_channels=1, num_classes=4, **sizes)
        for _ in range(20):
            network(next(iter(data.test_dataloader()))[0])
        members.append(network.eval())
        known.append(description(space, genotype, sizes, data.image, data.classes, data.mean, data.std))
    Ensemble(members, known).save(tmp_path / "ensemble")
    return members, data


def test_table_is_that_of_attacks_by_hand(tmp_path, command, ensemble):
    code, _, err = command("analyze", *FGSM, "study.ensemble=ensemble", "study.images=12", "run=a")
    assert (code, err) == (0, "")
    members, data = ensemble
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (data.mean, data.std))
    normalized, labels = (torch.cat(part)[:12] for part in zip(*data.test_dataloader(), strict=True))
    pixels = normalized * std + mean
    rounds = []
    for member in members:
        gradient = loss_gradient(lambda x, m=member: m((x - mean) / std), pixels, labels)
        changed = ((pixels + 0.1 * gradient.sign()).clamp(0, 1) - mean) / std
        p = torch.stack([other(changed).softmax(1) for other in members])
        alone = member(changed)
        rounds.append([float((q.argmax(1) == labels).float().mean()) for q in (alone, p.mean(0))])
    clean, row = csv.DictReader((tmp_path / "a" / "tables" / "defense.csv").read_text().splitlines())
    assert row["attack"] == "fgsm"
    for column, values in zip(("attack", "defense"), zip(*rounds, strict=True), strict=True):
        assert float(row[f"{column} accuracy"]) == pytest.approx(sum(values) / 2)
        assert float(row[f"± {column}"]) == pytest.approx(abs(values[0] - values[1]) / 2**0.5, abs=1e-6)
    assert clean["attack"] == "none"
    assert float(clean["± defense"]) == 0


def test_saved_rounds_are_not_computed_again(tmp_path, command, ensemble, monkeypatch):
    assert command("analyze", *FGSM, "study.ensemble=ensemble", "run=a").code == 0
    path = tmp_path / "a" / "rounds.json"
    done = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in done.items() if key != "fgsm/2"}))
    calls, attack = [], Fgsm.__call__

    def counted(self, network, x, y):
        calls.append(len(x))
        return attack(self, network, x, y)

    monkeypatch.setattr(Fgsm, "__call__", counted)
    assert command("analyze", "resume=a").code == 0
    assert sum(calls) == 16
    assert json.loads(path.read_text()) == done


REFUSED = [
    (("study.attacks=[fgms]",), "did you mean 'fgsm'?"),
    (("study.attacks=[]",), "`attacks` must have at least 1 item"),
    (("study.members=1",), "`members` must be at least 2"),
    (("study.ensemble=nowhere",), "The folder must have an ensemble.json"),
    (("study.ensemble=ensemble", "dataset.num_classes=3"), "The members were trained on images with"),
    (("study.settings.fgsm.epsilon=-1",), "`epsilon` must be greater than 0"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_mistakes_are_one_line(command, ensemble, arguments, message):
    code, _, err = command("analyze", *FGSM[:-1], *arguments)
    assert code == 1
    assert message in err
    assert len(err.splitlines()) == 1


TRAINED = (*FGSM, "study.members=2", "study.images=4", "trainer.max_epochs=1")
DAMAGES = {"empty": lambda b: b"", "half": lambda b: b[: len(b) // 2], "no zip": lambda b: b"\0" * 99}


def test_damaged_weights_are_an_error_with_the_file(tmp_path, command):
    assert command("analyze", *TRAINED, "run=a").code == 0
    file = tmp_path / "a" / "trained" / "2.pt"
    (tmp_path / "a" / "summary.json").unlink()
    whole = file.read_bytes()
    other = io.BytesIO()
    torch.save({"weight": torch.ones(3)}, other)
    for damage in (*DAMAGES.values(), lambda _: other.getvalue()):
        file.write_bytes(damage(whole))
        code, _, err = command("analyze", "resume=a")
        (line,) = err.splitlines()
        assert code == 1
        assert line.startswith("error: Cannot read the weights of network 2 of 2:")
        assert line.endswith("(in a/trained/2.pt)") or line.endswith(f"(in {file})")
    file.write_bytes(whole)
    assert command("analyze", "resume=a").code == 0


def test_diverged_members_are_an_error(tmp_path, command):
    code, _, err = command("analyze", *TRAINED, "retrain.lr=1e30", "run=a")
    assert code == 1
    assert err.startswith("error: Weights must be finite: lower the learning rate")
    assert not [*tmp_path.rglob("*.pt")]
