"""A stranger's additions: the recipes of CONTRIBUTING, done where the page says, with no file of ours edited.

The contract tests, as they are, find them and hold them to what they hold ours: in a copy of the repository,
and in a folder of the stranger's own.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_docs import FILE

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| [^|]+ \| `(nas_lightning/[\w/]+(?:/|\.py))`[^|]*\| [^|]*\| `([\w.]+)` \|$", re.M)
"""A row of the page's table: the folder of a class, and its public name."""
OF_A_FOLDER = (
    *("tests/strategies/test_contract.py", "tests/spaces/test_contract.py", "tests/data/test_contract.py"),
    *("tests/metrics/test_base.py", "tests/studies/test_contract.py", "tests/test_defaults.py"),
)
OF_THE_REPOSITORY = (
    *("tests/test_conf.py", "tests/test_package.py", "tests/test_docstrings.py"),
    *("tests/spaces/test_operations.py", "tests/strategies/one_shot/test_samplers.py", *OF_A_FOLDER),
)
CHOICE = """
import re

def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if re.search({names!r}, item.nodeid) or "[" not in item.nodeid]
"""
"""Of all tests those of the additions, and those that look at everything at once."""


class Addition(NamedTuple):
    """A file of a recipe."""

    path: Path
    text: str


def additions() -> list[Addition]:
    return [Addition(Path(path), text) for path, text in FILE.findall(PAGE)]


def places() -> dict[str, tuple[str, str]]:
    """The folder and the public name of each class, by its own name."""
    return {public.rpartition(".")[2]: (folder, public) for folder, public in ROW.findall(PAGE)}


def in_the_repository(copy: Path) -> None:
    """Put each file into its room and its group, as the table has them."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True
    ).stdout
    for name in filter(None, tracked.decode().split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, copy / name, follow_symlinks=False)
    public = {}
    for path, text in additions():
        if path.suffix == ".py":
            names = re.findall(r"^class (\w+)(?!\w|\((?:pl\.LightningDataModule|Dataset))", text, re.M)
            if not names:  # a module of data that somebody has already stays where it is
                write(copy / path, text)
                continue
            (name,) = names
            folder, public[f"{'.'.join(path.with_suffix('').parts)}.{name}"] = places()[name]
            write(copy / folder / path.name, text)
    for path, text in additions():
        if path.suffix == ".yaml":
            for own, ours in public.items():
                text = text.replace(f"_target_: {own}\n", f"_target_: {ours}\n")
            write(copy / "conf" / path.relative_to("my_conf"), text)


def in_a_folder(folder: Path) -> None:
    for path, text in additions():
        write(folder / path, text)


def write(path: Path, text: str) -> None:
    assert not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def passed(folder: Path, own: str, tests: tuple[str, ...], names: set[str], plugins: Path) -> list[str]:
    """The contract tests that passed there; none failed."""
    pattern = rf"[\[/.-]({'|'.join(sorted(names))})[\]/.-]"
    plugins.mkdir()
    (plugins / "choice.py").write_text(CHOICE.format(names=pattern), encoding="utf-8")
    quiet = ("-v", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider")
    words = ["-m", "pytest", *quiet, "-p", "choice", *tests]
    paths = os.pathsep.join(map(str, (folder, plugins)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "NAS_CONFIG_DIR": own}
    where = folder if not own else REPOSITORY
    run = subprocess.run([sys.executable, *words], cwd=where, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    return [line.split(" PASSED")[0] for line in run.stdout.splitlines() if " PASSED" in line]


def held(names: set[str], tests: list[str]) -> set[str]:
    """The additions that a test of theirs has passed."""
    return {name for name in names for test in tests if re.search(rf"[\[/.-]{name}[\]/.-]", test)}


def test_the_page_has_a_recipe_for_each_kind():
    groups = {path.parts[1] for path, _ in additions() if path.suffix == ".yaml"}
    kinds = {"strategy", "sampler", "regularizer", "space", "metric", "dataset", "study"}
    kinds |= {"callbacks", "experiment"}
    assert groups == kinds
    classes = {
        name
        for path, text in additions()
        for name in re.findall(r"^class (\w+)(?!\w|\((?:pl\.LightningDataModule|Dataset))", text, re.M)
    }
    assert classes - set(places()) == {"Decisive"}  # in the row of Sharp, the other part of one-shot search
    assert set(places()) <= classes


@pytest.mark.slow
def test_in_a_copy_of_the_repository_the_contract_tests_pick_them_up(tmp_path):
    in_the_repository(tmp_path / "copy")
    names = {path.stem for path, _ in additions()}
    found = passed(tmp_path / "copy", "", OF_THE_REPOSITORY, names, tmp_path / "plugins")
    assert held(names, found) == names


@pytest.mark.slow
def test_in_a_folder_of_their_own_the_contract_tests_pick_them_up(tmp_path):
    in_a_folder(tmp_path)
    names = {path.stem for path, _ in additions() if path.suffix == ".yaml"}
    found = passed(tmp_path, str(tmp_path / "my_conf"), OF_A_FOLDER, names, tmp_path / "plugins")
    assert held(names, found) >= names - {"short_cifar10"}  # which has no class that a contract is for
