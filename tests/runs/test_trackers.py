"""What reaches trackers: read back from W&B's own file, MLflow's database, TensorBoard's events."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
import torch
from omegaconf import OmegaConf
from pytorch_lightning.loggers import CSVLogger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.options import config_folder
from nas_lightning.plots.files import save_genotypes
from nas_lightning.runs.facts import HISTORY_FILE, RunFacts, history_line
from nas_lightning.runs.folder import RunFolder, sweep_of
from nas_lightning.runs.metrics_csv import MetricsCSV
from nas_lightning.runs.record import Record
from nas_lightning.runs.trackers import (
    MOST_DRAWN,
    Publication,
    mlflow_logger,
    published,
    stored_id,
    trackers_of,
    wandb_logger,
)
from nas_lightning.spaces import NasBench201
from nas_lightning.utils.files import check_contents
from tests.runs.wandb_file import read_runs

SPACE = NasBench201()
CONFIG = {
    **{"seed": 4711, "run": "${hydra:runtime.output_dir}", "task": {"score": "accuracy"}},
    **{"objective": "valid_${task.score}", "strategy": {"lr": 0.1, "place": "${run}/x"}, "operations": []},
}


def hydra(script="search", num=0, mode="RUN", **choices):
    return {
        "job": {"config_name": script, "num": num},
        "mode": mode,
        "runtime": {"choices": {**choices, "hydra/launcher": "basic"}},
    }


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    for folder in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(folder, str(tmp_path / "of_wandb"))


@pytest.fixture
def search(tmp_path):
    """A finished search of three epochs, the second of two jobs of a sweep."""
    sweep = RunFolder(tmp_path / "my_sweep")
    sweep.create(Record(("seed=1,4711",), {}, hydra(num="???", mode="MULTIRUN")))
    run = RunFolder(sweep.path / "1")
    run.create(
        Record(("seed=4711",), CONFIG, hydra(num=1, mode="MULTIRUN", strategy="darts", space="nasbench201"))
    )
    generator = torch.Generator().manual_seed(0)
    first, last = SPACE.sample(generator), SPACE.sample(generator)
    epochs = [
        {"epoch": epoch, "genotypes": [genotype.to_dict()], "groups": {}}
        for epoch, genotype in enumerate((first, first, last))
    ]
    (run.path / HISTORY_FILE).write_text("".join(map(history_line, epochs)))
    save_genotypes([last], run.path / "figures")
    metrics = MetricsCSV(run.path)
    for epoch in range(3):
        metrics.log_metrics({"epoch": epoch, "valid_accuracy": 0.5 - 0.1 * epoch}, epoch)
    metrics.finalize("success")
    run.report.write_text("<html><body>the page</body></html>")
    facts = RunFacts(
        "search", 4711, {"valid_accuracy": 0.3}, 12.5, params=11_000, macs=90_000, strategy="Darts"
    )
    run.finish(facts, [last])
    return run.path


@pytest.fixture
def training(tmp_path, search):
    """A finished training of what that search found."""
    run = RunFolder(tmp_path / "trained")
    config = {"seed": 2, "genotype": {"path": str(search)}, "objective": "test_accuracy"}
    run.create(Record((), config, hydra("train", genotype="file", dataset="digits")))
    (run.path / "model.safetensors").write_bytes(b"weights")
    run.finish(
        RunFacts("training", 2, {"test_accuracy": 0.9}, 3.0, params=7, macs=8), RunFolder(search).genotypes
    )
    return run.path


def log(logger, run, values):
    with published([logger], run):
        for step, value in enumerate(values):
            logger.log_metrics({"valid_accuracy": value}, step)


# Weights & Biases


def test_offline_it_is_silent_and_complete(search, capfd):
    log(wandb_logger(search), search, [0.25, 0.75, 0.5])
    assert capfd.readouterr() == ("", "")
    (run,) = read_runs(search)
    assert run.values("valid_accuracy") == [0.25, 0.75, 0.5]
    assert run.values("trainer/global_step")[:3] == [0, 1, 2]
    assert run.config["seed"] == 4711
    assert run.config["strategy"] == {"lr": 0.1, "place": f"{search}/x"}  # resolved
    assert run.config["choices"] == {"strategy": "darts", "space": "nasbench201"}
    assert "${" not in json.dumps(run.config)
    started = run.run
    assert (started.run_group, started.job_type, [*started.tags]) == (
        "my_sweep",
        "search",
        ["darts", "nasbench201"],
    )
    assert started.display_name == "darts nasbench201 seed 4711"
    assert (run.metrics["valid_accuracy"].summary.max, run.metrics["valid_loss"].summary.min) == (True, True)
    assert run.exit_code == 0


def test_pictures_tables_page_and_sizes_are_there(search):
    log(wandb_logger(search), search, [0.5])
    (run,) = read_runs(search)
    (picture,) = run.values("figures/genotype.path")
    assert (run.files / picture).read_bytes() == (search / "figures" / "genotype.png").read_bytes()
    assert run.values("cells/epoch") == [0, 2]  # the second epoch changed nothing
    assert len(run.values("cells.path")) == 2
    (table,) = run.values("genotypes.path")
    content = json.loads((run.files / table).read_text())
    assert content["columns"] == ["epoch", "genotype", "valid_accuracy"]
    assert [row[0::2] for row in content["data"]] == [[0, 0.5], [1, 0.4], [2, 0.3]]
    (page,) = run.values("report.path")
    assert "the page" in (run.files / page).read_text()
    assert {n: run.summary[n] for n in ("params", "macs", "seconds")} == {
        **{"params": 11_000, "macs": 90_000, "seconds": 12.5}
    }


def test_genotype_training_and_model_follow_from_each_other(search, training):
    log(wandb_logger(search), search, [0.5])
    log(wandb_logger(training), training, [0.5])
    ((found,),) = [run.artifacts for run in read_runs(search)]
    (run,) = read_runs(training)
    assert found.name == f"genotype-{run.config['search']}" == f"genotype-{stored_id(search, 'wandb')}"
    made = run.artifacts
    assert [artifact.type for artifact in made] == ["genotype", "model"]
    assert [entry.path for entry in made[1].manifest.contents] == ["model.safetensors"]
    assert {*made[1].aliases} == {"latest", "seed-2"}
    details = json.loads(made[1].metadata)
    assert (details["metrics"], details["params"]) == ({"test_accuracy": 0.9}, 7)


def test_a_resumed_run_is_the_same_run_there(search):
    log(wandb_logger(search), search, [0.5])
    log(wandb_logger(search), search, [0.6])
    first, second = read_runs(search)
    assert first.run.run_id == second.run.run_id == stored_id(search, "wandb")


def test_the_folder_leads_nowhere_else(search):
    """A run whose folder has links out of it is neither resumed nor has a page."""
    log(wandb_logger(search), search, [0.5])
    check_contents(search)


def test_typed_options_take_precedence(search):
    logger = wandb_logger(search, project="mine", name="n", group="g", tags=["t"], job_type="j", id="chosen")
    log(logger, search, [])
    (run,) = read_runs(search)
    assert (run.run.display_name, run.run.run_group, [*run.run.tags]) == ("n", "g", ["t"])
    assert (run.run.project, run.run.job_type, run.run.run_id) == ("mine", "j", "chosen")


def test_run_id_of_an_agent_is_kept(search, monkeypatch):
    monkeypatch.setenv("WANDB_RUN_ID", "agents")
    log(wandb_logger(search), search, [])
    (run,) = read_runs(search)
    assert run.run.run_id == "agents" == stored_id(search, "wandb")


def test_a_run_that_fails_has_ended_there_too(search, training):
    with pytest.raises(RuntimeError, match="weather"), published([wandb_logger(search)], search):
        raise RuntimeError("weather")
    log(wandb_logger(training), training, [0.5])  # the next job of a sweep, in the same process
    (failed,), (other,) = read_runs(search), read_runs(training)
    assert (failed.exit_code, other.exit_code) == (1, 0)
    assert failed.values("valid_accuracy") == []
    assert other.values("valid_accuracy") == [0.5]


def test_only_the_first_process_publishes(search, monkeypatch):
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    log(wandb_logger(search), search, [0.5])
    assert not (search / "wandb").exists()


def test_missing_account_suggests_offline_mode(search, monkeypatch, refusal):
    import wandb

    def no_account(**options):
        raise wandb.errors.UsageError("No API key configured.")

    monkeypatch.setattr(wandb, "init", no_account)
    message = refusal(wandb_logger, search)
    advice = "Cannot start Weights & Biases; WANDB_MODE=offline needs no connection"
    assert message == f"{advice}: No API key configured. (in logger)"


# Any of them


def test_custom_logger_has_the_tracker_of_its_base(tmp_path):
    class Mine(WandbLogger):
        pass

    mine = Mine(experiment=object(), save_dir=tmp_path)
    (tracker,) = trackers_of([CSVLogger(tmp_path), mine, MetricsCSV(tmp_path)])
    assert tracker.logger is mine


def test_without_a_tracker_nothing_happens(search):
    before = sorted(search.rglob("*"))
    with published([MetricsCSV(search)], search):
        pass
    assert sorted(search.rglob("*")) == before


def test_tensorboard_has_pictures_texts_and_sizes(search):
    from pytorch_lightning.loggers import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoardLogger(save_dir=search, name="tensorboard", version="")
    log(logger, search, [0.5])
    events = EventAccumulator(str(search / "tensorboard")).Reload()
    tags = events.Tags()
    assert {"cells", "figures/genotype"} <= {*tags["images"]}
    assert [image.step for image in events.Images("cells")] == [0, 2]
    assert {"valid_accuracy", "params", "macs", "seconds"} <= {*tags["scalars"]}
    assert {"config/text_summary", "genotypes/text_summary"} <= {*tags["tensors"]}


@pytest.mark.filterwarnings("ignore")  # MLflow's own, which differ from release to release
def test_mlflow_has_parameters_metrics_and_artifacts_in_its_database(search, training):
    pytest.importorskip("mlflow")
    check_mlflow(f"sqlite:///{search.parent.parent}/of_mlflow/runs.db", search, training)


@pytest.fixture
def mlflow_server(tmp_path):
    """The address of a server with a database and a folder of artifacts."""
    pytest.importorskip("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{tmp_path}/server.db"]
    words += ["--artifacts-destination", str(tmp_path / "artifacts")]
    argv = [sys.executable, "-m", "mlflow", "server", *words]
    with open(tmp_path / "server.log", "w") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    try:
        address, end = f"http://127.0.0.1:{port}", time.monotonic() + 300
        while not is_healthy(address):
            assert server.poll() is None, (tmp_path / "server.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.5)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def is_healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_them_on_a_server(search, training, mlflow_server, tmp_path):
    check_mlflow(mlflow_server, search, training)
    assert [*(tmp_path / "artifacts").rglob("model.safetensors")]


def check_mlflow(address: str, search, training) -> None:
    from mlflow.tracking import MlflowClient

    log(mlflow_logger(search, tracking_uri=address), search, [0.25, 0.75])
    log(mlflow_logger(search, tracking_uri=address), search, [0.5])  # resumed
    log(mlflow_logger(training, tracking_uri=address), training, [0.5])
    found = MlflowClient(address)
    (experiment,) = [one for one in found.search_experiments() if one.name == "nas-lightning"]
    trained, searched = found.search_runs([experiment.experiment_id])
    assert searched.info.run_id == stored_id(search, "mlflow")
    assert (searched.info.run_name, searched.info.status) == ("darts nasbench201 seed 4711", "FINISHED")
    assert searched.data.params["strategy/lr"] == "0.1"
    assert (searched.data.metrics["params"], searched.data.metrics["seconds"]) == (11_000, 12.5)
    steps = found.get_metric_history(searched.info.run_id, "valid_accuracy")
    assert [metric.value for metric in steps if metric.step == 0][:2] == [0.25, 0.5]
    assert {"kind": "search", "sweep": "my_sweep"}.items() <= searched.data.tags.items()
    names = {item.path for item in found.list_artifacts(searched.info.run_id)}
    assert names == {"cells", "figures", "genotype.json", "genotypes.csv", "report.html"}
    assert trained.data.tags["search"] == searched.info.run_id
    assert "model.safetensors" in {item.path for item in found.list_artifacts(trained.info.run_id)}


def test_cells_are_few_however_many_epochs_have_changed_them(search, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    epochs = [
        {"epoch": epoch, "genotypes": [SPACE.sample(generator).to_dict()], "groups": {}}
        for epoch in range(100)
    ]
    (search / HISTORY_FILE).write_text("".join(map(history_line, epochs)))
    monkeypatch.setattr("nas_lightning.runs.trackers._paint", lambda figure: figure)
    drawn = [epoch for epoch, _ in Publication(search).cells()]
    assert (len(drawn), drawn[0], drawn[-1]) == (MOST_DRAWN, 0, 99)
    assert drawn == sorted({*drawn})


def test_a_sweep_is_found_however_deep_its_jobs_are(search, tmp_path):
    assert sweep_of(search) == tmp_path / "my_sweep"
    deep = tmp_path / "my_sweep" / "strategy=darts" / "seed=0"
    assert sweep_of(deep) == tmp_path / "my_sweep"
    assert sweep_of(tmp_path / "alone") is None


def test_an_agent_of_weights_and_biases_types_what_search_understands():
    """`${args_no_hyphens}` is the agent's list of name=value."""
    from nas_lightning.cli import search

    sweep = OmegaConf.to_container(OmegaConf.load(config_folder() / "wandb_sweep.yaml"))
    assert sweep["program"] == "nas-search"
    words = [word for word in sweep["command"][2:] if word != "${args_no_hyphens}"]
    drawn = [
        f"{name}={spec.get('min', spec.get('values', [None])[0])}"
        for name, spec in sweep["parameters"].items()
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["search.py", "--cfg", "job", *words, *drawn])
        search()
    assert sweep["metric"]["name"] == "valid_accuracy"
