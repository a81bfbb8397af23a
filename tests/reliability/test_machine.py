"""Numbers of processes are limited by the number of cores."""

import re

import pytest
from hydra.utils import get_object

from nas_lightning.errors import InputError
from nas_lightning.utils.machine import PER_CORE, check_processes, count_cores
from nas_lightning.validation import arguments
from tests.cli.conftest import TINY_SEARCH
from tests.test_defaults import OPTIONS
from tests.test_settings import accepts
from tests.yamls import file

LIMIT = PER_CORE * count_cores()
SEARCH = (*TINY_SEARCH, "trainer.max_epochs=1", "strategy=random")
TOO_MANY = {
    "strategy.workers": (*SEARCH[:-1], "strategy=knas", "strategy.pool=null"),
    "dataset.num_workers": ("space=nasbench201", "strategy=random", "dataset=image_folder", "dataset.root=."),
    "trainer.devices": (*SEARCH, "trainer.accelerator=cpu"),
    "hydra.launcher.n_jobs": (*SEARCH, "-m", "launcher=joblib", "seed=1,2"),
}


def named_targets() -> list[str]:
    texts = [file(*option).read_text(encoding="utf-8") for option in OPTIONS]
    return sorted({name for text in texts for name in re.findall(r"_target_: (nas_lightning[\w.]+)", text)})


def test_every_number_of_workers_is_limited():
    hints = {
        f"{target}.{name}": hint
        for target in named_targets()
        for name, hint in (arguments(get_object(target)) or {}).items()
        if name.endswith(("workers", "processes", "threads"))
    }
    assert len(hints) > 10
    assert [name for name, hint in hints.items() if accepts(hint, LIMIT + 1)] == []
    assert [name for name, hint in hints.items() if not accepts(hint, LIMIT)] == []


@pytest.mark.parametrize("setting", TOO_MANY)
def test_too_many_processes_are_rejected_before_the_start(setting, command, tmp_path):
    code, _, err = command("search", *TOO_MANY[setting], f"{setting}={LIMIT + 1}")
    assert code == 1
    (line,) = err.splitlines()
    assert f"must be at most {LIMIT}, {PER_CORE} for each core of this machine, got {LIMIT + 1}" in line
    assert line.endswith(f"(in {setting})")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_automatic_numbers_of_processes_are_accepted():
    for count in (None, "auto", -1, [0, 1], True, LIMIT, str(LIMIT)):
        check_processes(count, "trainer.devices")
    with pytest.raises(InputError, match=f"got {LIMIT + 1}"):
        check_processes(str(LIMIT + 1), "trainer.devices")


def test_several_nodes_need_a_master_address(command, monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    code, _, err = command("search", *SEARCH, "trainer.accelerator=cpu", "trainer.num_nodes=2")
    assert (code, len(err.splitlines())) == (1, 1)
    assert "Several nodes need MASTER_ADDR in the environment, or the job of a scheduler" in err
    assert "got 2 (in trainer.num_nodes)" in err
