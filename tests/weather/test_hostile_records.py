"""Records that a stranger wrote: whatever words, values and places, nothing runs, nothing is written outside.

A record that is no worse than a user's own may be obeyed: its search then runs in its folder, nowhere else.
"""

import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from nas_lightning.cli.composer import Composer
from nas_lightning.cli.failures import FAILURES
from nas_lightning.cli.stored_words import check_stored
from nas_lightning.errors import InputError
from nas_lightning.options import config_folder
from nas_lightning.runs.record import read_record
from tests.cli.conftest import TINY_SEARCH
from tests.weather.test_hostile_folder import MARKER, check_refused, outside, stranger

__all__ = ["stranger"]

PREFIXES = ["", "+", "++", "~"]
KEYS = [
    *("run", "resume", "operations", "space.ops", "space", "strategy", "strategy._target_", "experiment"),
    *(
        "callbacks",
        "callbacks.evil",
        "callbacks.evil._target_",
        "callbacks.history.folder",
        "callbacks.history",
    ),
    *("callbacks.within_epochs.path", "callbacks.checkpoint.dirpath", "callbacks.checkpoint.filename"),
    *(
        "logger",
        "logger.csv",
        "logger.csv.folder",
        "logger.csv._target_",
        "logger.evil",
        "logger.csv._partial_",
    ),
    *("trainer", "trainer._target_", "trainer.default_root_dir", "trainer.plugins", "trainer.logger"),
    *(
        "hydra.run.dir",
        "hydra.searchpath",
        "hydra.callbacks",
        "hydra.output_subdir",
        "hydra/launcher",
        "hydra",
    ),
    *("dataset", "dataset.root", "dataset.download", "dataset._target_", "benchmark", "benchmark.trust"),
    *("search_data", "derivation._target_", "supernet", "network", "launcher", "objective", "evil", "seed"),
    *(
        "strategy@hydra.launcher",
        "strategy@evil",
        "sampler@strategy.sampler",
        "callbacks@_global_",
        "_target_",
    ),
]
CALLS = [
    *("evil.Evil", "os.mkdir", "os.system", "torch.load", "numpy.load", "joblib.load", "builtins.exec"),
    *(
        "pathlib.Path.touch",
        "subprocess.run",
        "nas_lightning.models.timm.main",
        "hydra.utils.instantiate",
    ),
]
TEXTS = [
    *(
        "elsewhere",
        "../elsewhere",
        "~/elsewhere",
        "/elsewhere",
        "evil",
        "../../evil",
        "csv",
        "none",
        "darts",
        "3",
    ),
    *("${run}", "${oc.env:HOME}", "${hydra:runtime.cwd}", "${oc.create:{_target_:os.mkdir}}", "${seed}"),
    *("null", "true", "[]", "{}", "pkg://evil", "[file://.]", "[evil.Evil]", "", "payload.pkl", "a b"),
]
calls = st.builds(
    lambda target, key, argument: f"{{_target_:{target},{key}:{argument}}}",
    st.sampled_from(CALLS),
    st.sampled_from(["path", "f", "file", "command", "name", "_args_"]),
    st.sampled_from([MARKER, "payload.pkl", f"[{MARKER}]", f"'touch {MARKER}'"]),
)
plain = st.one_of(st.sampled_from(TEXTS), st.sampled_from(CALLS), calls, st.text(max_size=12))
nested = st.recursive(
    plain,
    lambda inner: st.one_of(
        inner.map(lambda value: f"[{value}]"),
        st.tuples(st.sampled_from(["a", "path", "folder", "_target_", "csv"]), inner).map(
            lambda pair: f"{{{pair[0]}:{pair[1]}}}"
        ),
        inner.map(lambda value: f'"{value}"'),
    ),
    max_leaves=4,
)
words = st.one_of(
    st.builds(lambda p, k, v: f"{p}{k}={v}", st.sampled_from(PREFIXES), st.sampled_from(KEYS), nested),
    st.text(max_size=30),
)
WHERE = Path("his")
OURS = "".join(file.read_text() for file in config_folder().rglob("*.yaml"))


def strings(value, path=()):
    """Every text in a plain configuration, by its path."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from strings(item, (*path, key))
    elif isinstance(value, str):
        yield path, value


def composed(*words):
    """A search's configuration and Hydra's part of it, references as they are written."""
    with Composer("search") as composer:
        config = OmegaConf.to_container(composer.compose([*TINY_SEARCH, *words]), resolve=False)
    own = config.pop("hydra")
    return config, {key: value for key, value in own.items() if key not in ("overrides", "runtime", "job")}


@settings(max_examples=400, deadline=None)
@given(st.lists(words, min_size=1, max_size=3))
def test_stored_words_leave_classes_places_references_and_hydra_as_they_are(stored):
    try:
        check_stored(stored, (), WHERE)
    except InputError:
        return
    try:
        config, hydra = composed(*stored)
    except FAILURES:
        return  # which is a line on the screen, as the next test says
    before, hydra_before = composed()
    places = {path: value for path, value in strings(before) if "${run}" in value}
    assert hydra == hydra_before
    assert config["run"] == before["run"]
    for path, value in strings(config):
        if path in places:
            assert value == places[path]
        if "_target_" in path:
            assert re.search(rf"_target_: *{re.escape(value)}\b", OURS)
        if "${" in value:
            assert value in OURS or re.fullmatch(r"\$\{[\w.]+\}", value)


PARTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.sampled_from(TEXTS)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["overrides", "config", "hydra"]), PARTS)
def test_any_record_is_read_or_refused(tmp_path, name, content):
    folder = tmp_path / ".hydra"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({"hydra": content} if name == "hydra" else content))
    try:
        record = read_record(tmp_path)
    except InputError:
        return
    assert isinstance(record.script, str)
    assert isinstance(record.folders, tuple)
    assert isinstance(record.choices, dict)


LAUGHS = "a: &a [lol]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghij")
)
DAMAGE = [LAUGHS, "- &a [*a]", "[" * 5000, "!!python/object/apply:os.mkdir [marker]", "\0", "1" * 10_000]


@pytest.mark.parametrize("name", ["overrides", "config", "hydra"])
@pytest.mark.parametrize("text", DAMAGE, ids=lambda text: repr(text)[:20])
def test_a_damaged_record_is_one_line(stranger, command, name, text):
    (stranger / "searched" / ".hydra" / f"{name}.yaml").write_text(text)
    before = outside(stranger)
    check_refused(command("search", "resume=searched"), stranger, before)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words)
def test_a_command_that_goes_on_with_any_record_is_one_line_or_a_search(stranger, command, word):
    """The whole way, but for the search itself."""
    run = stranger / "searched"
    kept = yaml.safe_load((run / ".hydra" / "overrides.yaml").read_text())
    record = yaml.safe_dump([*kept, word])
    before = outside(stranger)
    own = (run / ".hydra" / "overrides.yaml").read_bytes()
    try:
        (run / ".hydra" / "overrides.yaml").write_text(record)
        outcome = command("search", "resume=searched", "--cfg", "job")
    finally:
        (run / ".hydra" / "overrides.yaml").write_bytes(own)
    assert not (stranger / MARKER).exists()
    assert "evil" not in sys.modules
    assert outside(stranger) == before
    assert outcome.code == 0 or len(outcome.err.splitlines()) == 1, (word, outcome.err)
