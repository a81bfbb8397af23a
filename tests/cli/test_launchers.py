"""A sweep of four jobs gives the same results with each installed launcher as in one process."""

import re
import sys

import pytest

from tests.cli.test_sweep import SWEEP, assert_same_results, finish

LAUNCHERS = {
    "joblib": ("hydra_plugins.hydra_joblib_launcher", ("launcher=joblib", "hydra.launcher.n_jobs=2")),
    "submitit": (
        "hydra_plugins.hydra_submitit_launcher",
        ("hydra/launcher=submitit_local", "hydra.launcher.timeout_min=20"),
    ),
    "ray": ("hydra_plugins.hydra_ray_launcher", ("launcher=ray",)),
    "dask": ("distributed", ("launcher=dask", "hydra.launcher.n_workers=2")),
}
SEEDS = (*SWEEP, "seed=0,1,2,3")


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    folder = tmp_path_factory.mktemp("complete")
    code, out = finish(*SEEDS, "run=sweep", cwd=folder)
    assert code == 0, out
    return folder / "sweep"


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHERS)
def test_launchers_give_the_results_of_one_process(name, complete, tmp_path):
    module, argv = LAUNCHERS[name]
    pytest.importorskip(module)
    code, out = finish(*SEEDS, *argv, "run=sweep", cwd=tmp_path)
    assert code == 0, out
    for job in "0123":
        assert_same_results(complete / job, tmp_path / "sweep" / job)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHERS)
def test_jobs_cannot_share_a_folder(name, tmp_path):
    """The error must not be the death of a worker."""
    module, argv = LAUNCHERS[name]
    pytest.importorskip(module)
    code, out = finish(*SWEEP, "seed=0,1", *argv, "run=sweep", "hydra.sweep.subdir=same", cwd=tmp_path)
    assert code == 1, out
    reason = r"error: (`seed` cannot change in a resumed run|another process is writing here)"
    assert len(re.findall(reason, out)) == 1, out
    assert "Traceback" not in out


def test_dask_is_not_installed(command, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, _, err = command("search", *SEEDS, "launcher=dask", "run=sweep")
    assert code == 1
    assert err == "error: launcher=dask needs Dask (pip install distributed) (in launcher)\n"
    assert not [*tmp_path.iterdir()]
