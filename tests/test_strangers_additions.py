"""A stranger's additions: the recipes of CONTRIBUTING, done in a copy of the repository that is not edited.

The contract tests, as they are, find them and hold them to what they hold ours.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ROOMS = {
    **{"strategy": "strategies", "space": "spaces", "metric": "metrics", "dataset": "data"},
    **{"study": "studies", "callbacks": "callbacks"},
}
"""The room of each group's classes, as the table of CONTRIBUTING says."""
FILE = re.compile(r"`(my_\w+)/([\w/]+)\.(\w+)`[^\n]*\n\n```\w+\n(.*?)```", re.S)
CONTRACTS = (
    *("tests/test_conf.py", "tests/test_defaults.py", "tests/test_rooms.py", "tests/test_package.py"),
    *("tests/strategies/test_contract.py", "tests/spaces/test_contract.py", "tests/data/test_contract.py"),
    *("tests/metrics/test_contract.py", "tests/studies/test_contract.py"),
)


def recipes() -> list[tuple[str, str, str, str]]:
    """(top, path, suffix, text) of each file of the page."""
    return FILE.findall((REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def add(copy: Path) -> set[str]:
    """Put each file where the page says; the names of the parts."""
    classes = {path: text for top, path, _, text in recipes() if top == "my_nas"}
    names = set()
    for top, path, suffix, text in recipes():
        if top != "my_conf":
            continue
        for module, name in re.findall(r"_target_: my_nas\.(\w+)\.(\w+)", text):
            room = ROOMS[path.partition("/")[0]]
            new = copy / "nas_lightning" / room / f"{module}.py"
            assert not new.exists()
            new.write_text(classes[module], encoding="utf-8")
            text = text.replace(f"my_nas.{module}.{name}", f"nas_lightning.{room}.{name}")
        new = copy / "conf" / f"{path}.{suffix}"
        assert not new.exists()
        new.write_text(text, encoding="utf-8")
        names.add(new.stem)
    return names


@pytest.mark.slow
def test_the_contract_tests_pick_them_up(tmp_path):
    copy = tmp_path / "copy"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True
    ).stdout
    for name in filter(None, tracked.decode().split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, copy / name, follow_symlinks=False)
    names = add(copy)
    assert len(names) >= len(ROOMS)
    words = [sys.executable, "-m", "pytest", "-v", "-m", "not slow", "-p", "no:cacheprovider", *CONTRACTS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(copy)}
    run = subprocess.run(
        [*words, "-k", " or ".join(sorted(names))], cwd=copy, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-4000:]
    ids = [line.split(" PASSED")[0] for line in run.stdout.splitlines() if " PASSED" in line]
    held = {name for name in names for test in ids if re.search(rf"[\[/-]{name}[\]/.-]", test)}
    assert held == names
