"""Backends with several processes give the same results as one process, bit for bit."""

import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import yaml

from nas_lightning.backends import connect_dask, spread
from nas_lightning.data import ExternalData, SearchData
from nas_lightning.errors import InputError
from nas_lightning.options import config_folder
from nas_lightning.runs.folder import RunFolder
from tests.cli.conftest import TINY_SEARCH

CONF = config_folder()

QUICK = ("callbacks.history.figures=false", "strategy.epochs=1", "strategy.images=4", "strategy.agreement=0")
SMALL = {
    "evolution": ("strategy.population=2", "strategy.sample=2"),
    "optuna": ("strategy.starts=2",),
    "metric_search": ("strategy.pool_size=4", "strategy.pool_per_round=0"),
}
POOL = ("strategy.pool_size=4",)


def names(where: str, marker: str) -> list[str]:
    """Return the options of a group whose yaml contains `marker`."""
    files = sorted((CONF / where).glob("[!_]*.yaml"))
    return [file.stem for file in files if marker in file.read_text()]


STRATEGIES = names("strategy", "- _black_box")
FAST = ("processes", "evolution")
SLOW = [
    pytest.param(backend, strategy, marks=pytest.mark.slow)
    for backend in ("ray", "dask", "processes")
    for strategy in STRATEGIES
    if (backend, strategy) != FAST
]


def search(command, strategy: str, *overrides: str) -> tuple[object, ...]:
    """Return the results of a search of three rounds, without logs and checkpoints."""
    argv = (*TINY_SEARCH, f"strategy={strategy}", "strategy.evaluation=training", *QUICK)
    run = "_".join(["run", *overrides]).replace("strategy.", "").replace("=", "_")
    settings = (*SMALL.get(strategy, POOL), "trainer.max_epochs=3", f"run={run}")
    code, out, err = command("search", *argv, *settings, *overrides)
    assert code == 0, err
    folder = RunFolder(Path(run))
    file = folder.path / "pool.csv"  # in order of arrival
    pool = sorted(file.read_text().splitlines()) if file.exists() else None
    return folder.genotypes, pool, (folder.path / "metrics.csv").read_bytes(), out.count("epoch 3/3")


@pytest.mark.parametrize(("backend", "strategy"), [FAST, *SLOW])
def test_backends_give_the_results_of_one_process(backend, strategy, command, cluster):
    cluster(backend)
    one = search(command, strategy)
    assert search(command, strategy, f"strategy.backend={backend}", "strategy.workers=2") == one


@pytest.fixture
def cluster():
    """`cluster("ray")` of two processors, for a test; skipped where its package is missing."""
    ends = []

    def start(backend: str) -> None:
        if backend == "ray":
            ray = pytest.importorskip("ray")
            ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
            ends.append(ray.shutdown)
        if backend == "dask":
            pytest.importorskip("distributed")
            client = connect_dask(None, 2)
            ends.append(client.shutdown)

    yield start
    for end in ends:
        end()


def test_every_yaml_with_workers_has_a_backend():
    settings = [*CONF.glob("strategy/*.yaml"), *CONF.glob("study/*.yaml")]
    having = {f: [*yaml.safe_load(f.read_text()).values()] for f in settings if "workers:" in f.read_text()}
    assert len(having) > 7
    for file, parts in having.items():
        backends = [part["backend"] for part in parts if isinstance(part, dict) and "workers" in part]
        assert backends == ["processes"], file


@pytest.mark.parametrize(("backend", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_backend_is_not_installed(backend, package, command, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    for argv in ((*TINY_SEARCH, "strategy=hnas"), (*TINY_SEARCH, "strategy=random")):
        code, _, err = command("search", *argv, f"strategy.backend={backend}", "run=a")
        assert (code, len(err.splitlines())) == (1, 1)
        assert f"This backend needs the package {package} (pip install {package}), got '{backend}'" in err


def test_unknown_backend(command):
    code, _, err = command("search", *TINY_SEARCH, "strategy=hnas", "strategy.backend=rays", "run=a")
    assert code == 1
    assert err == "error: `backend` must be 'processes', 'ray' or 'dask', got 'rays' (in strategy.backend)\n"


def test_work_that_cannot_be_pickled():
    lock = threading.Lock()
    with pytest.raises(InputError, match="The work must be picklable"):
        list(spread(lambda number: (lock, number), [(1,), (2,)], workers=2))


def test_errors_of_worker_processes_are_raised():
    def fail(number):
        raise InputError("The number must be even", got=number)

    with pytest.raises(InputError, match="The number must be even, got 3"):
        list(spread(fail, [(3,), (3,)], workers=2))


@pytest.mark.slow
def test_dask_starts_with_slow_threads(monkeypatch):
    """Dask's own client fails with an assertion if the thread of its loop takes ten seconds to start."""
    utils = pytest.importorskip("distributed.utils")
    run = utils.asyncio_run

    def late(*args, **options):
        time.sleep(11)
        return run(*args, **options)

    monkeypatch.setattr(utils, "asyncio_run", late)
    client = connect_dask(None, 1)
    try:
        assert client.submit(divmod, 7, 2).result() == (3, 1)
    finally:
        client.close()


def test_data_modules_are_sent_without_their_trainer():
    data = SearchData(ExternalData((torch.zeros(16, 1, 4, 4), torch.arange(16) % 2), batch_size=4))
    data.trainer = data.data.trainer = object()
    sent = data.to_send()
    assert (sent.trainer, sent.data.trainer) == (None, None)
    assert data.data.trainer is data.trainer is not None
    assert torch.equal(sent.valid_batches(1)[0][1], data.valid_batches(1)[0][1])
