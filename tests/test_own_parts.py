"""The examples of docs/own_parts.md, copied into a folder outside the repository, pass the contract tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import FILE

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "own_parts.md").read_text(encoding="utf-8")
RECIPES = {Path(path): text for path, text in FILE.findall(PAGE)}
CONTRACTS = (
    *("tests/strategies/test_contract.py", "tests/spaces/test_contract.py", "tests/data/test_contract.py"),
    *("tests/metrics/test_base.py", "tests/studies/test_contract.py", "tests/test_defaults.py"),
)
CHOICE = """
import re

def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if re.search({names!r}, item.nodeid) or "[" not in item.nodeid]
"""
"""Selects the tests of the recipes, and those that look at everything at once."""


def test_the_page_has_a_recipe_for_each_kind():
    groups = {path.parts[1] for path in RECIPES if path.suffix == ".yaml"}
    assert groups == {
        *("strategy", "sampler", "regularizer", "space", "metric", "dataset", "study", "callbacks"),
        "experiment",
    }


@pytest.mark.slow
def test_recipes_in_a_folder_of_their_own_pass_the_contract_tests(tmp_path):
    for path, text in RECIPES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    names = {path.stem for path in RECIPES if path.suffix == ".yaml"}
    pattern = rf"[\[/.-]({'|'.join(sorted(names))})[\]/.-]"
    (tmp_path / "choice.py").write_text(CHOICE.format(names=pattern), encoding="utf-8")
    quiet = (
        "-v",
        "-n",
        "0",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        str(tmp_path / "base"),
    )
    environment = {
        **os.environ,
        **{"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path), "NAS_CONFIG_DIR": str(tmp_path / "my_conf")},
    }
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *quiet, "-p", "choice", *CONTRACTS],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    passed = "\n".join(line for line in run.stdout.splitlines() if " PASSED" in line)
    tested = {name for name in names if re.search(rf"[\[/.-]{name}[\]/.-]", passed)}
    assert tested >= names - {"short_cifar10"}  # a recipe, for which there is no contract
