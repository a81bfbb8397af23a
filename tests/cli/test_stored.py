"""What the words of a record may say, one rule after another, with a neighbor that may stay."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from nas_lightning.cli.settings_of_0_1 import record_of_today
from nas_lightning.cli.stored_words import (
    DEEPEST,
    LONGEST_WORD,
    MOST_WORDS,
    Leaf,
    _reason,
    _walk,
    check_folders,
    check_stored,
    check_stored_targets,
    own_words,
    places,
)
from nas_lightning.errors import InputError
from nas_lightning.runs.record import Record

MAY_STAY = [
    *("seed=1", "seed=-1.5", "+dataset.more=true", "++strategy.lr=null", "dataset.name='a text'"),
    *("strategy=darts", "strategy=null", "+strategy=darts", "~strategy", "strategy=darts,gdas", "~seed"),
    *("metric@strategy.metric=flops,fisher", "callbacks=[ntk,ranking]", "callbacks=null", "callbacks=[]"),
    *("seed=range(3)", "seed=interval(0,1)", "a={}", "a={lr:0.1,sampler:{tau_end:2}}"),
    *("space.layers=${seed}", "dataset.x=[${seed},2,${a.b.c}]", "dataset.name='of ${seed} and ${a.b}'"),
    *("logger.csv=null", "callbacks.history.folder=null", "logger.csv.folder=null", "logger.csv.name=a"),
    *("callbacks.progress=null", "callbacks.history.figures=false", "+trainer.limit_val_batches=1"),
    *("trainers.logger=a/b", "+dataset.path=/elsewhere", "dataset.root='~/data'", "retrain.path=../a"),
    *("dataset.download=false", "dataset.download=null", "+benchmark.trust=false", "strategy.trust=null"),
    *("space.ops=[none,skip_connect]", "space.depth=1.5", "network.paths=a", "operation=a", "module=a"),
    *("network.channels=4", "strategy.name=a.b"),
    *("runs=3", "resumed=3", "my_hydra=3", "a.b_=c", "a-b=c", "logger=csv,none"),
]
REFUSED = {
    "a setting with a plain name": [
        *("study.spaces={../../a:1}", "a={b:{/etc/c:1}}", "+study.cells={a\\\\b:{x:1}}", "a={b:{x..y:1}}"),
    ],
    "a setting key=value": ["", "seed", "=", "a=[", "+seed", "a={b:[}", "1a=b"],
    "a setting that is not Hydra's": [
        *("run=a", "+run=a", "resume=a", "hydra.verbose=true", "hydra/launcher=a", "hydra={}", "run.x=1"),
        *(
            "~hydra.run",
            "strategy@hydra.launcher=darts",
            "strategy@run=darts",
        ),
        *("~resume", "resume.x=1"),
    ],
    "an option of strategy (did you mean 'darts'?)": [
        "strategy=dart",
        "strategy=darts,dart",
        "++strategy=dart",
    ],
    "an option of strategy": [
        "strategy={}",
        "strategy=../evil",
        "strategy=3",
        "strategy=[darts,x]",
        "+strategy@evil=../../x",
    ],
    "a group of options that exists": ["a/b=c", "~strategy/x=darts", "+strategy/x=darts"],
    "a setting that callbacks has": ["+callbacks.more.x=1", "++callbacks.more=2"],
    "a setting that logger has": ["+logger.more=1", "++logger.csv.x=2"],
    "a plain value": ["seed=glob(*)", "seed=glob(a*,exclude=ab)"],
    "a setting, and no class to build": [
        *("strategy._target_=a.B", "_target_=b", "a={_target_:a.B}", "a={a:{b:{_args_:[1]}}}"),
        *("a=[{_target_:b}]", "a={a._target_:b}", "a._b.c=1", "seed=1,{_target_:a}"),
    ],
    "a value, or a reference to another setting": [
        *("seed=${oc.env:HOME}", "seed=${hydra.runtime.cwd}", "seed='${${a}}'", "seed=${now:%H}"),
        *("seed=[1,${oc.env:A}]", "seed='${a} ${b:c}'", "seed=${.a}", "seed=1,${oc.env:A}"),
    ],
    "no place that files are written to": [
        *("study.scores=/elsewhere", "study.scores=scores.csv", "+study.scores=../a", "strategy.pool=a.csv"),
        *("logger.csv.folder=a", "callbacks.history.folder=a", "trainer.default_root_dir=a"),
        *("logger.more={csv:{folder:a}}", "callbacks.x.path=a", "callbacks.y.dirpath=b", "strategy.pool=a"),
        *("trainer.logger=true", "trainer.callbacks=[]", "+trainer.profiler=null", "++trainer.plugins=null"),
        *("callbacks.a.b=c/d", "callbacks.a.b='c\\\\d'", "logger.a.b='~'", "trainer.a=b..c", "logger.a=b/c"),
    ],
    "no module of somebody's own": ["modules=[a]", "modules.x=null", "network.path=a.b", "network.a.path=b"],
    "the name of an operation of ours": ["operations=[a]", "operations=null", "space.ops=[none,a.B]"],
    "download=false": ["dataset.download=true", "dataset.download=1", "dataset.a={download:yes}"],
    "trust=false": ["benchmark.trust=true", "+benchmark.trust=a"],
}


@pytest.mark.parametrize("word", MAY_STAY)
def test_settings_with_plain_values_and_references_may_stay(word):
    assert own_words([word]) == []
    check_stored([word], (), Path("run"))


@pytest.mark.parametrize(("reason", "word"), [(r, word) for r, words in REFUSED.items() for word in words])
def test_what_says_more_is_refused_with_its_reason(reason, word):
    assert (_reason(word, ()) or "").startswith(reason)
    assert own_words(["seed=1", word, "seed=2"]) == [word]
    with pytest.raises(InputError) as refusal:
        check_stored(["seed=1", word], (), Path("run"))
    assert "; where it is to count, type it again, or --trust for your own run" in str(refusal.value)
    assert str(refusal.value).endswith("(in run)")


def test_the_reason_says_all_that_may_be_chosen():
    assert _reason("arch_step=x", ()).startswith("an option of arch_step (choose from first_order, ")


def test_an_option_of_a_typed_folder_may_stay(tmp_path):
    (tmp_path / "strategy").mkdir()
    (tmp_path / "strategy" / "own.yaml").write_text("a: 1\n")
    assert own_words(["strategy=own"]) == ["strategy=own"]
    assert own_words(["strategy=own", "strategy=other"], [tmp_path]) == ["strategy=other"]
    check_stored(["strategy=own"], [tmp_path], Path("run"))


def test_words_have_bounds():
    check_stored(["seed=1"] * MOST_WORDS, (), Path("run"))
    with pytest.raises(InputError, match=rf"at most {MOST_WORDS} settings, got {MOST_WORDS + 1} \(in run\)"):
        check_stored(["seed=1"] * (MOST_WORDS + 1), (), Path("run"))
    longest = "a=" + "b" * (LONGEST_WORD - 2)
    assert _reason(longest, ()) is None
    assert _reason(f"{longest}b", ()) == f"a setting of at most {LONGEST_WORD} characters"
    assert (MOST_WORDS, LONGEST_WORD, DEEPEST) == (1000, 10_000, 20)  # as docs say


def test_values_are_walked_to_their_leaves_so_deep():
    value = {"b": {"c": 1, "d": []}, "e.f": [2, [3, {}], {"g": "h"}], "i": {}, "j": None}
    leaves = list(_walk(value, ("a",)))
    assert [leaf for leaf in leaves if leaf.value is not None] == [
        *(Leaf(("a", "b", "c"), 1), Leaf(("a", "e", "f"), 2), Leaf(("a", "e", "f"), 3)),
        Leaf(("a", "e", "f", "g"), "h"),
    ]
    assert {leaf.path for leaf in leaves if leaf.value is None} == {
        *(("a", "b"), ("a", "b", "c"), ("a", "b", "d"), ("a", "e.f"), ("a", "e", "f"), ("a", "e", "f", "g")),
        *(("a", "i"), ("a", "j")),
    }
    assert [*_walk(1, ("a",) * DEEPEST)] == [Leaf(("a",) * DEEPEST, 1)]
    with pytest.raises(RecursionError):
        [*_walk(1, ("a",) * (DEEPEST + 1))]


def nested(depth: int) -> str:
    return "a=" + "{b:" * depth + "1" + "}" * depth


def test_a_word_that_is_nested_too_deeply_is_none():
    assert _reason(nested(DEEPEST - 1), ()) is None
    assert _reason(nested(DEEPEST), ()) == "a setting key=value"


def test_folders_are_typed_where_a_record_has_some():
    sources = [{"provider": "command-line", "path": path} for path in ("a b", "c")]
    own, none = (Record((), {}, {"runtime": {"config_sources": s}}) for s in (sources, []))
    with pytest.raises(InputError) as refusal:
        check_folders(own, [])
    assert str(refusal.value).startswith("expected --config-dir 'a b' --config-dir c, which the run was")
    assert str(refusal.value).endswith("got 'none' (in resume)")
    check_folders(own, [Path("other")])
    check_folders(none, [])


OURS = "nas_lightning.callbacks.GenotypeHistory"


@pytest.mark.parametrize(
    "settings",
    [
        {"a": {"_target_": "evil.Evil"}},
        {"strategy": {"_target_": "evil.Evil"}},
        {"a": [3, {"b": {"_target_": "evil.Evil"}}]},
        {"a": {"_target_": OURS, "b": None, "c": {"_target_": "evil.Evil"}}},
        {"a": None, "b": "???", "hydra": {}, "c": [[{"_target_": "evil.Evil"}]]},
    ],
)
def test_a_class_that_nobody_names_is_refused_wherever_it_stands(settings, tmp_path):
    config = OmegaConf.create(settings)
    with pytest.raises(
        InputError, match=r"a class that a typed configuration names, got 'evil.Evil' \(in res"
    ):
        check_stored_targets(config, [], ["seed=1"])
    check_stored_targets(config, [], ["seed=1", "+a._target_=evil.Evil"])
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "evil.yaml").write_text("a:\n  _target_: 'evil.Evil'\n")
    check_stored_targets(config, [tmp_path], [])
    (tmp_path / "own" / "evil.yaml").unlink()
    check_stored_targets(config, [tmp_path], [])  # a folder is read once


def test_classes_of_ours_and_what_hydra_builds_are_as_they_are():
    ours = {"a": {"_target_": OURS}, "b": "${hydra:x}", "c": ["???", None], "d": "???", "e": None}
    check_stored_targets(OmegaConf.create({**ours, "hydra": {"_target_": "evil.Evil"}}), [], [])


def test_the_places_are_those_that_our_yamls_put_into_the_run():
    """Of the yamls at the top, the group is the name that stands there."""
    assert places.__wrapped__() == {
        *(("callbacks", name) for name in ("dirpath", "folder", "path")),
        *(("logger", name) for name in ("folder", "save_dir")),
        *(("strategy", name) for name in ("folder", "pool")),
        ("study", "scores"),
        ("trainer", "default_root_dir"),
    }


def test_runs_of_0_1_keep_the_width_of_their_gaussians():
    config = {"strategy": {"_target_": "nas_lightning.strategies.Nesbs", "size": 3}}
    found = record_of_today(Record(("strategy=nesbs",), config, {}))
    assert found.words == ("strategy=nesbs", "strategy.svgd_variance=candidates")
    assert found.config["strategy"]["svgd_variance"] == "candidates"
    chosen = {"strategy": {**config["strategy"], "svgd_variance": "operations"}}
    assert record_of_today(Record((), chosen, {})).config == chosen


@pytest.mark.parametrize("kind", ["OneShot", "Gaea"])
def test_a_rate_that_nobody_typed_is_that_of_the_optimizer(kind):
    config = {"strategy": {"_target_": f"nas_lightning.strategies.{kind}", "arch_lr": 0.1}}
    assert "arch_lr" not in record_of_today(Record(("strategy=gaea",), config, {})).config["strategy"]
    typed = record_of_today(Record(("strategy=gaea", "strategy.arch_lr=0.1"), config, {}))
    assert typed.config["strategy"]["arch_lr"] == 0.1
