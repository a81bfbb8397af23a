"""The run's seed is passed to parts that name it; an explicit seed takes precedence."""

from pathlib import Path
from textwrap import dedent

import pytest

from nas_lightning.genotype import read_genotypes
from tests.cli.conftest import TINY_SEARCH

TAKES_SEED = "def __init__(self, space, seed=0): super().__init__(space, seed)"
TAKES_OPTIONS = "def __init__(self, space, **options): super().__init__(space, **options)"
TAKES_NO_SEED = "def __init__(self, space): super().__init__(space)"


@pytest.fixture
def write_strategy(tmp_path):
    """`write_strategy(constructor, yaml)`: write a custom strategy, and its yaml in mine/strategy."""

    def write(constructor: str, yaml: str = "") -> None:
        (tmp_path / "mine" / "strategy").mkdir(parents=True)
        (tmp_path / "mine" / "strategy" / "custom.yaml").write_text(
            f"# Mine\n_target_: {tmp_path.name}_custom.Custom\n{yaml}"
        )
        (tmp_path / f"{tmp_path.name}_custom.py").write_text(
            dedent(f"""\
            from nas_lightning.strategies import Strategy

            class Custom(Strategy):
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
        "strategy=custom",
        "--config-dir",
        "mine",
        "callbacks.history=null",
    )
    for seed in seeds:
        code, _, err = command("search", *argv, f"seed={seed}", f"run=seed_{seed}")
        assert code == 0, err
    return [read_genotypes(tmp_path / f"seed_{seed}") for seed in seeds]


@pytest.mark.parametrize("constructor", [TAKES_SEED, TAKES_OPTIONS, TAKES_NO_SEED])
def test_custom_strategies_get_the_seed_of_the_run(command, tmp_path, write_strategy, constructor):
    write_strategy(constructor)
    one, other = genotypes_of(command, tmp_path, 1, 2)
    assert one != other


def test_seed_in_a_yaml_takes_precedence(command, tmp_path, write_strategy):
    write_strategy(TAKES_SEED, "seed: 5\n")
    one, other = genotypes_of(command, tmp_path, 1, 2)
    assert one == other
