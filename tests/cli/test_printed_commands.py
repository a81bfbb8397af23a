"""What a run prints as the next command runs, for every space at settings that are not its own."""

import re
import shlex

import pytest

import nas_lightning
from tests.spaces.conftest import SPACES, small_words

IMAGES = ("dataset=fake", "dataset.shape=[1,8,8]", "dataset.train_size=32", "dataset.test_size=16")
FURTHER = {"two nodes": ("darts", "space.nodes=2")}
CASES = {**{name: (name,) for name in SPACES}, **FURTHER}


def printed(out: str, purpose: str) -> str:
    found = re.search(rf"^{purpose}:\n  (.+)$", out, re.MULTILINE)
    assert found, out
    return found[1]


def words(line: str, script: str) -> list[str]:
    """What follows the script in a printed command."""
    parts = shlex.split(line)
    place = next(i for i, part in enumerate(parts) if part.endswith((f"{script}.py", f"nas-{script}")))
    return parts[place + 1 :]


@pytest.mark.parametrize("case", CASES)
def test_the_commands_that_a_run_prints_run(command, case):
    name, *settings = CASES[case]
    chosen = (f"space={name}", *small_words(name), *settings, *IMAGES)
    searched = command("search", "strategy=random", "strategy.count=1", *chosen, "run=searched")
    assert searched.code == 0, searched.err
    quick = ("trainer.max_epochs=1", "run=trained")
    trained = command("train", *words(printed(searched.out, "Train it"), "train"), *quick)
    assert trained.code == 0, trained.err
    there = {}
    exec(f"import nas_lightning; {printed(trained.out, 'Use it in Python')}", there)
    known = nas_lightning.describe("trained")
    assert known.genotype == nas_lightning.genotype.read_genotypes("searched")[0]
    for word in settings:
        key, value = word.removeprefix("space.").split("=")
        assert str(known.settings[key]).replace("'", "").replace(" ", "") == value
    assert there["network"](nas_lightning.models.file.torch.zeros(1, 1, 8, 8)).shape == (1, 4)
