"""The run's seed is passed to parts that name it; an explicit seed takes precedence."""

from pathlib import Path
from textwrap import dedent

import pytest

from nas_lightning.genotype import read_genotypes
from tests.cli.conftest import TINY_SEARCH

NAMES_IT = "def __init__(self, space, seed=0): super().__init__(space, seed)"
PASSES_IT_ON = "def __init__(self, space, **options): super().__init__(space, **options)"
KNOWS_NONE = "def __init__(self, space): super().__init__(space)"


@pytest.fixture
def stranger(tmp_path):
    """`stranger(line, yaml)`: a custom strategy with a constructor, and its yaml in mine/strategy."""

    def write(constructor: str, yaml: str = "") -> None:
        (tmp_path / "mine" / "strategy").mkdir(parents=True)
        (tmp_path / "mine" / "strategy" / "own.yaml").write_text(
            f"# Mine\n_target_: {tmp_path.name}_own.Own\n{yaml}"
        )
        (tmp_path / f"{tmp_path.name}_own.py").write_text(
            dedent(f"""\
            from nas_lightning.strategies import Strategy

            class Own(Strategy):
                {constructor}

                def derive(self):
                    return [self.space.sample(self.generator)]

                def training_step(self, *args):
                    return None

                def configure_optimizers(self):
                    return None
            """)
        )

    return write


def genotypes_of(command, tmp_path: Path, *seeds: int) -> list:
    argv = (
        *TINY_SEARCH,
        "trainer.max_epochs=0",
        "strategy=own",
        "--config-dir",
        "mine",
        "callbacks.history=null",
    )
    for seed in seeds:
        code, _, err = command("search", *argv, f"seed={seed}", f"run=seed_{seed}")
        assert code == 0, err
    return [read_genotypes(tmp_path / f"seed_{seed}") for seed in seeds]


@pytest.mark.parametrize("constructor", [NAMES_IT, PASSES_IT_ON, KNOWS_NONE])
def test_a_strangers_strategy_has_the_runs_seed(command, tmp_path, stranger, constructor):
    stranger(constructor)
    one, other = genotypes_of(command, tmp_path, 1, 2)
    assert one != other


def test_a_seed_in_the_yaml_wins(command, tmp_path, stranger):
    stranger(NAMES_IT, "seed: 5\n")
    one, other = genotypes_of(command, tmp_path, 1, 2)
    assert one == other
