"""`resume=`: validation of saved configurations, and settings that cannot change."""

import zipfile
from pathlib import Path

import pytest
import yaml

from nas_lightning.cli.resume import read_start, saved_overrides
from nas_lightning.cli.saved import KEPT, check_kept, check_saved, kept_settings
from nas_lightning.errors import InputError
from nas_lightning.runs.record import Record, read_record
from tests.cli.conftest import TINY_SEARCH


def write_record(run: Path, overrides=("seed=1",), *, script="search", sweep=False, config=None) -> Path:
    hydra = {"job": {"config_name": script}, "mode": "MULTIRUN" if sweep else "RUN"}
    run.mkdir(parents=True, exist_ok=True)
    Record(tuple(overrides), {"seed": 1} if config is None else config, hydra).write(run)
    return run


def test_read_start(tmp_path):
    run, sweep = write_record(tmp_path / "run"), write_record(tmp_path / "sweep", sweep=True)
    assert read_start("search", run, sweep=False).overrides == ("seed=1",)
    assert read_start("search", sweep, sweep=True).is_sweep
    empty = write_record(tmp_path / "empty", config={})
    for path, script, as_sweep, message in (
        (tmp_path / "nothing", "search", False, "No run in"),
        (empty, "search", False, "No run in"),
        (run, "train", False, "is a run of search, not of train"),
        (run, "search", True, "is a single run. Leave out -m"),
        (sweep, "search", False, "is a sweep. Add -m"),
    ):
        with pytest.raises(InputError, match=message):
            read_start(script, path, sweep=as_sweep)


def test_damaged_checkpoint(tmp_path):
    run = write_record(tmp_path)
    file = run / "checkpoints" / "last.ckpt"
    file.parent.mkdir()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", bytes(range(256)))
    assert read_start("search", run, sweep=False).overrides == ("seed=1",)
    content = bytearray(file.read_bytes())
    content[content.index(bytes(range(256))) + 100] ^= 1
    for damaged in (bytes(content), bytes(content[:100]), b""):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=r"checkpoint .* is damaged"):
            read_start("search", run, sweep=False)


def saved(finished, name: str = "searched") -> dict:
    return dict(read_record(finished / name).config)


def test_configurations_of_real_runs_are_accepted(finished):
    for name in ("searched", "trained"):
        check_saved(saved(finished, name))


HOSTILE = {
    "strategy._target_": "os.system",
    "callbacks.history._target_": "nas_lightning.utils.files.shutil.rmtree",
    "callbacks.history.folder": "/tmp/elsewhere",
    "callbacks.checkpoint.dirpath": "${run}/../elsewhere",
    "callbacks.checkpoint.filename": "../../elsewhere",
    "callbacks.checkpoint.save_top_k": 3,
    "logger.csv.name": "a/b",
    "trainer.default_root_dir": "elsewhere",
    "strategy._args_": ["rm"],
    "dataset.noise": "${oc.env:HOME}",
    "dataset.download": True,
    "benchmark": {"_target_": "nas_lightning.objectives.NasBench201", "trust": True},
    "operations": ["mine.Conv"],
    "modules": ["mine"],
    "space.ops": ["none", "mine.Conv"],
    "network.path": "mine.Net",
}


@pytest.mark.parametrize("key", HOSTILE)
def test_hostile_configuration(finished, key):
    config = saved(finished)
    *parents, last = key.split(".")
    node = config
    for name in parents:
        node = node[name]
    node[last] = HOSTILE[key]
    with pytest.raises(InputError, match="The saved configuration"):
        check_saved(config)
    if "${oc" not in str(HOSTILE[key]):
        check_saved(config, typed=[f"{key.removesuffix('._target_')}={HOSTILE[key]}"])


def test_classes_of_config_dir_are_accepted(finished, tmp_path):
    config = saved(finished)
    config["strategy"] = {"_target_": "mine.Search"}
    with pytest.raises(InputError, match="names a custom class"):
        check_saved(config)
    (tmp_path / "strategy").mkdir()
    (tmp_path / "strategy" / "mine.yaml").write_text("_target_: mine.Search\n")
    check_saved(config, [tmp_path])


def test_hostile_run_executes_nothing(command, runs):
    (runs / "mine.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    file = runs / "searched" / ".hydra" / "config.yaml"
    config = yaml.safe_load(file.read_text())
    hostile = {
        "class": {"callbacks": {**config["callbacks"], "custom": {"_target_": "mine.Custom"}}},
        "part": {"strategy": {"_target_": "mine.Custom"}},
        "hydra": {
            "hydra": {"callbacks": {"custom": {"_target_": "mine.Custom"}}},
            "operations": ["mine.Custom"],
        },
    }
    for content in hostile.values():
        file.write_text(yaml.safe_dump({**config, **content}))
        code, _, err = command("search", "resume=searched")
        assert code == 1
        assert err.startswith("error: The saved configuration")
        assert len(err.splitlines()) == 1
    assert not (runs / "executed").exists()
    only_hydra = {**config, "hydra": {"searchpath": ["file:///tmp"], "run": {"dir": "/tmp/elsewhere"}}}
    file.write_text(yaml.safe_dump(only_hydra))
    assert command("search", "resume=searched").code == 0  # that part is not read
    (runs / "searched" / "link").symlink_to(runs / "elsewhere")
    assert "must not have links to elsewhere" in command("search", "resume=searched").err


def test_saved_overrides():
    hydra = {"overrides": {"hydra": ["hydra.sweeper.n_trials=3", "hydra.sweeper._target_=os.system"]}}
    record = Record(("strategy=a,b", "seed=1", "run=x"), {}, hydra)
    assert saved_overrides(record, ["-m", "seed=2"]) == ["hydra.sweeper.n_trials=3", "strategy=a,b"]
    for word in ("hydra.run.dir=/tmp", "lr=${oc.env:HOME}", "strategy@hydra=a", "--config-dir=x", "=3"):
        with pytest.raises(InputError, match="type its command again"):
            saved_overrides(Record((word,), {}, {}), [])


def test_kept_settings():
    tree = {
        **{
            name: {"a": {"b": 1}, "root": 2, "c": None} for name in KEPT if name != "seed" and "." not in name
        },
        **{"seed": 3, "trainer": {"max_epochs": 4, "max_steps": 5, "max_time": 6, "max": 7, "devices": 8}},
        **{"spaces": 9, "callbacks": {"space": 10}, "benchmark": {"path": 11}},
    }
    assert len(kept_settings(tree)) == len(KEPT)
    for name in ("root", "download", "num_workers", "in_memory", "eval_batch_size", "workers", "cells"):
        assert kept_settings({"dataset": {name: 1, f"a_{name}": 2}}) == {f"dataset.a_{name}": [2]}


def test_changed_classes_are_named_first():
    old = {"seed": 1, "strategy": {"_target_": "A", "lr": 0.1}}
    check_kept(old, {**old, "callbacks": {"a": 1}}, "x")
    with pytest.raises(InputError, match=r"`strategy\._target_` cannot change in a resumed run: A in `x`"):
        check_kept(old, {"seed": 2, "strategy": {"_target_": "B", "lr": 0.1}}, "x")
    with pytest.raises(InputError, match="`seed` cannot change"):
        check_kept(old, {**old, "seed": 2}, "x")


def test_overrides_of_a_resumed_run(command, runs):
    (runs / "searched" / "summary.json").unlink()
    for overrides, message in (
        (("seed=3",), "`seed` cannot change in a resumed run: 0 in `searched`, 3 now"),
        (("strategy=gdas",), "Could not override 'strategy'"),
        (
            ("callbacks.histor=null",),
            "There is no setting `callbacks.histor`. Did you mean `callbacks.history`?",
        ),
    ):
        code, _, err = command("search", "resume=searched", *overrides)
        assert code == 1
        assert message in err
        assert len(err.splitlines()) == 1
    assert (
        command("search", "resume=searched", "callbacks.page=null", "trainer.log_every_n_steps=5").code == 0
    )
    assert (runs / "searched" / "summary.json").is_file()


def test_requeued_slurm_job_is_resumed(command, runs, monkeypatch):
    assert "has a run" in command("search", *TINY_SEARCH, "run=searched").err
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert command("search", "run=searched").code == 0
