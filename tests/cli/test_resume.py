"""Which run goes on behind `resume=`, what of its record counts, and what must not have changed since."""

import errno
import zipfile
from pathlib import Path

import pytest
from nas_lightning.cli.composer import Composer
from omegaconf import OmegaConf

from nas_lightning.cli.resume import (
    KEPT,
    _is_whole,
    check_same,
    check_same_run,
    find_run,
    kept_settings,
    record_to_resume,
    resume_requeued,
    run_to_resume,
)
from nas_lightning.errors import InputError
from nas_lightning.runs.record import Record

WORDS = ("seed=1", "strategy.lr=0.1")
OWN = "+callbacks.own._target_=mine.Own"


def write_record(run: Path, words=WORDS, *, script="search", folders=(), sweep=False, config=None) -> Path:
    sources = [{"provider": "command-line", "path": str(folder)} for folder in folders]
    hydra = {"job": {"config_name": script}, "runtime": {"config_sources": sources}}
    run.mkdir(parents=True, exist_ok=True)
    whole = {**hydra, "mode": "MULTIRUN"} if sweep else hydra
    Record(tuple(words), {"seed": 1} if config is None else config, whole).write(run)
    return run


def find(run: Path, *typed: str, script="search", folders=(), sweep=False, trust=False):
    return find_run(script, [f"resume={run}", *typed], folders, sweep=sweep, trust=trust)


def test_the_last_folder_that_is_typed_counts():
    assert run_to_resume(["seed=1", "resume=a", "resume='b c'", "resumes=d"]) == Path("b c")
    assert run_to_resume(['resume="a=b"']) == Path("a=b")
    assert run_to_resume(["resume=runs/a"]) == Path("runs/a")
    for none in ([], ["seed=1"], ["resume=null"], ["resume=a", "resume=null"]):
        assert run_to_resume(none) is None
        assert find_run("search", none, (), sweep=False, trust=False) is None
    for nothing in (["resume="], ["resume=a", "resume=''"]):
        with pytest.raises(
            InputError, match=r"expected the folder of an earlier run, got 'nothing' \(in res"
        ):
            run_to_resume(nothing)


@pytest.mark.parametrize("trust", [False, True])
def test_what_is_typed_replaces_what_was(tmp_path, trust):
    stopped = find(write_record(tmp_path / "run"), "strategy.lr=0.2", trust=trust)
    assert (stopped.run, stopped.folders) == (tmp_path / "run", ())
    assert [*stopped.words] == ["seed=1"]
    assert stopped.record.words == WORDS  # the record itself stays
    assert stopped.record.config == {"seed": 1}


def test_a_word_is_replaced_by_its_key_and_nothing_less(tmp_path):
    words = ("a.b=1", "a.bc=c=2", "seed=3")
    assert [*find(write_record(tmp_path, words), "a.bc=x=y").words] == ["a.b=1", "seed=3"]


def test_a_word_of_ones_own_is_typed_again_or_trusted(tmp_path):
    run = write_record(tmp_path, (*WORDS, OWN))
    with pytest.raises(InputError, match="type it again, or --trust"):
        find(run)
    again = find(run, OWN)
    assert [*again.words] == [*WORDS]
    assert again.record.words == WORDS  # else the run's own words would not be those of a stranger's
    assert [*find(run, trust=True).words] == [*WORDS, OWN]
    assert find(run, trust=True).record.words == (*WORDS, OWN)


def test_the_folders_of_a_record_count_where_they_are_trusted_and_none_is_typed(tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    run = write_record(tmp_path / "run", folders=[mine])
    with pytest.raises(InputError, match="expected --config-dir"):
        find(run)
    assert find(run, folders=(other,)).folders == ()
    assert find(run, folders=(other,), trust=True).folders == ()
    assert find(run, trust=True).folders == (mine,)


def test_a_link_out_of_the_folder_is_followed_by_those_who_trust(tmp_path):
    run = write_record(tmp_path / "run")
    (run / "metrics.csv").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="without links to elsewhere"):
        find(run)
    assert find(run, trust=True).run == run


def test_a_sweep_goes_on_as_one(tmp_path):
    run, sweep = write_record(tmp_path / "run"), write_record(tmp_path / "sweep", sweep=True)
    assert find(sweep, sweep=True).run == sweep
    with pytest.raises(InputError, match=r"folder of a run, or -m before resume=, got '.*sweep' \(in resume"):
        find(sweep)
    with pytest.raises(
        InputError, match=r"folder of a sweep, or resume= without -m, got '.*run' \(in resume"
    ):
        find(run, sweep=True)


def test_only_a_whole_record_of_the_same_script_goes_on(tmp_path):
    for script, other in (("search", "train"), ("train", "search")):
        with pytest.raises(InputError, match=f"expected the folder of a run of {other}.py"):
            find(write_record(tmp_path / script, script=script), script=other)
    run = write_record(tmp_path / "run", script="train")
    assert record_to_resume("train", run).words == WORDS
    with pytest.raises(InputError, match=r"of a run of search.py, got '.*run' \(in resume\)"):
        record_to_resume("search", run)
    empty = write_record(tmp_path / "empty", config={})
    for record in (tmp_path / "nothing", empty):
        with pytest.raises(
            InputError, match=rf"the folder of an earlier run, got '.*{record.name}' \(in res"
        ):
            record_to_resume("search", record)
    (run / ".hydra" / "hydra.yaml").unlink()
    with pytest.raises(InputError, match="the folder of an earlier run"):
        record_to_resume("train", run)
    (run / ".hydra" / "hydra.yaml").write_text("[")
    with pytest.raises(InputError, match="the folder of an earlier run"):
        record_to_resume("train", run)


def test_a_record_of_an_earlier_version_is_read_as_one_of_today(tmp_path):
    config = {"strategy": {"_target_": "nas_lightning.strategies.Darts", "order": 2, "lr": 0.1}}
    run = write_record(tmp_path, ("strategy=darts", "strategy.order=2"), config=config)
    record = record_to_resume("search", run)
    assert record.words == ("strategy=darts", "arch_step=second_order")
    assert record.config == {"strategy": {"lr": 0.1}}


def test_a_checkpoint_that_is_there_is_whole(tmp_path):
    run = write_record(tmp_path)
    file = run / "checkpoints" / "last.ckpt"
    file.parent.mkdir()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", bytes(range(256)))
    assert record_to_resume("search", run).words == WORDS
    content = bytearray(file.read_bytes())
    content[content.index(bytes(range(256))) + 100] ^= 1
    for damaged in (bytes(content), bytes(content[:100]), b""):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=r"a checkpoint, got 'a damaged file' \(in .*last.ckpt\)"):
            record_to_resume("search", run)


@pytest.mark.parametrize("error", [zipfile.BadZipFile(), OSError(errno.EIO, "broken"), EOFError()])
def test_a_file_that_cannot_be_read_is_not_whole(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(zipfile, "ZipFile", fail)
    assert _is_whole(tmp_path) is False


def test_a_job_that_slurm_starts_again_goes_on(tmp_path, monkeypatch):
    run = write_record(tmp_path / "run")
    typed = ["seed=1", "hydra.run.dir=first", "hydra.run.dir=second", f"hydra.run.dir='{run}'"]
    assert resume_requeued(typed) == typed
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert resume_requeued(typed) == ["seed=1", f"resume='{run}'"]
    assert resume_requeued(["seed=1"]) == ["seed=1"]
    new = ["seed=1", f"hydra.run.dir={run}", f"hydra.run.dir={tmp_path / 'new'}"]
    assert resume_requeued(new) == new


def test_every_setting_that_decides_the_result_is_kept():
    tree = {
        **{name: {"a": {"b": 1}, "root": 2} for name in KEPT if name != "seed" and "." not in name},
        **{"seed": 3, "trainer": {"max_epochs": 4, "max_steps": 5, "max_time": 6, "max": 7, "devices": 8}},
        **{"spaces": 9, "callbacks": {"space": 10}, "benchmark": {"path": 11}},
    }
    kept = kept_settings(tree)
    fixed = {"seed": 3, "trainer.max_epochs": 4, "trainer.max_steps": 5, "trainer.max_time": 6}
    assert kept == {**{f"{name}.a.b": 1 for name in KEPT if f"{name}.a.b" in kept}, **fixed}
    assert len(kept) == len(KEPT)


@pytest.mark.parametrize(
    "name", ["root", "download", "num_workers", "in_memory", "eval_batch_size", "workers", "cells"]
)
def test_where_data_is_and_who_works_may_change(name):
    tree = {"dataset": {name: 1, f"a_{name}": 2, "of": {name: 3}}}
    assert kept_settings(tree) == {f"dataset.a_{name}": 2}


def test_an_empty_part_and_none_are_settings():
    assert kept_settings({"space": {}, "ensemble": None, "study": {"a": {}, "b": []}}) == {
        **{"space": {}, "ensemble": None},
        **{"study.a": {}, "study.b": []},
    }


def test_classes_are_named_before_what_follows_from_them():
    old = {"a": 1, "z._target_": "mine.Old", "b": 2}
    with pytest.raises(
        InputError, match=r"expected z._target_=mine.Old, as .* has it, got 'mine.New' \(in h"
    ):
        check_same(old, {"a": 2, "z._target_": "mine.New", "b": 3}, where="here")
    with pytest.raises(InputError, match=r"expected a=1, as the run that goes on has it, got 2 \(in here\)"):
        check_same(old, {**old, "b": 3, "a": 2}, where="here")
    with pytest.raises(InputError, match=r"expected b=2, as .* has it, got 'nothing'"):
        check_same(old, {"a": 1, "z._target_": "mine.Old"}, where="here")
    with pytest.raises(InputError, match=r"expected c=None, as .* has it, got 4"):
        check_same(old, {**old, "c": 4}, where="here")
    check_same(old, {**old}, where="here")


def test_a_class_of_ours_may_have_moved_to_another_module():
    ours = "nas_lightning.strategies"
    check_same({"a": f"{ours}.Darts"}, {"a": f"{ours}.oneshot.darts.Darts"}, where="here")
    for old, new in (
        (f"{ours}.Darts", f"{ours}.Gdas"),
        ("mine.Darts", "yours.Darts"),
        ("mine.Darts", f"{ours}.Darts"),
        (3, "3"),
    ):
        with pytest.raises(InputError, match="as the run that goes on has it"):
            check_same({"a": old}, {"a": new}, where="here")


class NoComposer:
    """One that must not be asked."""

    def compose(self, words):
        raise AssertionError(words)


def composed(words=(), **settings):
    overrides = {"hydra": ["hydra.run.dir=a"], "task": [*words, "resume=a"]}
    return OmegaConf.create({**settings, "hydra": {"overrides": overrides}})


def test_a_run_that_changes_is_refused_without_another_composition():
    record = Record(("seed=1",), {"seed": 1, "strategy": {"lr": 0.1}}, {})
    check_same_run(record, composed(["seed=1"], seed=1, strategy={"lr": 0.1}), NoComposer())
    check_same_run(record, composed(["a=b"], seed=1, strategy={"lr": 0.1}, more=3), NoComposer())
    with pytest.raises(InputError, match=r"expected strategy.lr=0.1, .* got 0.2 \(in resume\)"):
        check_same_run(record, composed(["strategy.lr=0.2"], seed=1, strategy={"lr": 0.2}), NoComposer())
    with pytest.raises(InputError, match=r"expected strategy.lr=0.1, .* got 'nothing'"):
        check_same_run(record, composed(seed=1, strategy={}), NoComposer())


def test_an_option_newer_than_the_run_is_as_its_own_words_have_it():
    record = Record(("strategy=evolution",), {"seed": 5}, {})
    with Composer("search") as composer:
        today = composer.compose(["strategy=evolution", "strategy.sample=7"])
        today.hydra.overrides.hydra, today.hydra.overrides.task = [], ["resume=a", "strategy.sample=7"]
        today.seed = 5
        with pytest.raises(InputError, match=r"expected strategy.sample=\d+, .* got 7 \(in resume\)"):
            check_same_run(record, today, composer)
        today.hydra.overrides.task = ["resume=a", "strategy=evolution", "hydra.verbose=true"]
        check_same_run(record, today, NoComposer())  # nothing typed besides can have changed it
        today.seed = 6
        with pytest.raises(InputError, match=r"expected seed=5, .* got 6"):
            check_same_run(record, today, NoComposer())
