"""Bad inputs, generated: settings × values and files × damage; what a command may answer to one.

    python -m tests.weather.bad_input --cases 1000 --seed 0

runs the long form and prints the count last.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from omegaconf import DictConfig
from pytorch_lightning.loops.training_epoch_loop import _TrainingEpochLoop

from nas_lightning.cli.composer import Composer
from nas_lightning.cli.words import expand_shorthand
from nas_lightning.utils.files import FILE_NAME as LOCK
from tests.cli.conftest import TINY_SEARCH, run_script
from tests.weather.bad_runs import (
    FLAGS,
    KINDS,
    PIPE,
    QUICK,
    TRAINING,
    Damage,
    damages,
    entries,
    place_runs,
    run_entry,
    source,
)

SECONDS = 60  # of the processor, that a command may take to say no; or of waiting
TICK = 10.0
WAITING = 0.003  # the share of the processor that one takes which waits

COMMANDS = {
    "one-shot": KINDS["search"],
    "defaults": ("search", *TINY_SEARCH, *QUICK),
    "black box": ("search", *TINY_SEARCH, *QUICK, "strategy=random", "strategy.count=2"),
    "metrics": (
        *("search", *TINY_SEARCH, *QUICK, "strategy=knas", "strategy.pool=null"),
        *("strategy.images=4", "strategy.pool_size=3"),
    ),
    "training": KINDS["training"],
    "ensemble": KINDS["ensemble"],
    "study": KINDS["study"],
}
"""Commands of a second, each of which runs as it stands."""

NOT_FINITE = ("nan", "inf", "-inf", "1e400", ".nan", "-1e999")
VALUES = (
    *(
        "null",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "3",
        "0.5",
        "-0.5",
        "2.0",
        *NOT_FINITE,
        "1e300",
        "1e-300",
        "1e38",
    ),
    *(
        "99999999999999999999999",
        "100000",
        "-99999",
        "abc",
        "''",
        "[]",
        "[1]",
        "[nan]",
        "[[]]",
        "[a,b]",
        "{}",
    ),
    *(
        "{a:1}",
        "{_target_:os.getcwd}",
        "${nothing}",
        "${run}",
        "${seed}",
        "${oc.env:NO_SUCH_VARIABLE}",
        "???",
    ),
    *("/proc/nothing/x", "a/b/c", "../out", "'a b'", "ünïcode", "'\\n'", "x" * 300, "1_000", "0x10", "~/x"),
)
"""What may be typed for any setting: some of it fits some of them."""

MORE = (
    *(
        "trainer.logger=false",
        "trainer.default_root_dir=elsewhere",
        "trainer.min_epochs=7",
        "+trainer.min_steps=9",
    ),
    *("trainer.limit_train_batches=0", "trainer.limit_train_batches=0.01", "trainer.limit_val_batches=-1"),
    *("trainer.gradient_clip_val=nan", "trainer.gradient_clip_algorithm=nope", "trainer.max_steps=0"),
    *(
        "trainer.max_steps=-5",
        "trainer.max_time=soon",
        "trainer.val_check_interval=7.5",
        "trainer.profiler=nope",
    ),
    *("trainer.strategy=nope", "trainer.num_nodes=0", "trainer.devices=99", "trainer.devices=[7]"),
    *("trainer.callbacks=3", "trainer.check_val_every_n_epoch=0", "trainer.overfit_batches=-1"),
    *(
        "trainer.fast_dev_run=true",
        "trainer.barebones=true",
        "trainer.detect_anomaly=maybe",
        "trainer.plugins=3",
    ),
    *(
        "trainer.reload_dataloaders_every_n_epochs=-2",
        "trainer.log_every_n_steps=-1",
        "trainer.deterministic=7",
    ),
    *("trainer.enable_checkpointing=false", "trainer.limit_test_batches=0", "trainer.inference_mode=3"),
    *(
        "hydra.runtime.cwd=inf",
        "hydra.sweeper=foo",
        "hydra.launcher=foo",
        "hydra/sweeper=foo",
        "hydra.job.name=a/b",
        "hydra.run=3",
    ),
    *(
        "hydra=3",
        "hydra.run.dir=null",
        "hydra.run.dir=[]",
        "hydra.sweep=null",
        "hydra.mode=foo",
        "hydra.verbose=7",
    ),
    *("hydra.job_logging=3", "hydra.callbacks=3", "hydra.output_subdir=3", "hydra.job.chdir=true"),
    *("--config-name=foo", "--config-path=foo", "--config-dir=foo", "--package=foo", "--info=foo", "--run"),
    *(
        "--experimental-rerun=foo",
        "--shell-completion",
        "--cfg=foo",
        "-m",
        "-cn",
        "--hydra-help=3",
        "--resolve",
    ),
    *(
        "run=",
        "run=/proc/x",
        "run=/dev/null",
        "run=/dev/null/x",
        "run=null",
        "run=3",
        "run=[]",
        "run=${nothing}",
    ),
    *("run=${run}", "run='a\\nb'", "resume=3", "resume=/dev/null", "resume=.", "resume=[]", "resume=${run}"),
    *(
        "resume='\\0'",
        "+genotype.x=1",
        "+x=1",
        "++x.y=1",
        "~objective",
        "~seed",
        "~run",
        "~trainer",
        "~hydra",
    ),
    *(
        "~strategy",
        "~dataset",
        "~callbacks",
        "~logger",
        "~retrain",
        "~network",
        "~supernet",
        "~space",
        "~study",
    ),
    *("objective=3", "objective=[]", "objective=null", "objective=nope", "strategy=null", "space=null"),
    *("dataset=null", "callbacks=null", "logger=null", "retrain=null", "genotype=null", "study=null"),
    *("genotype=file", "genotype.path=3", "+genotype.path=3", "benchmark=nasbench201", "+benchmark.path=3"),
    *(
        "derivation=null",
        "launcher=null",
        "trainer=null",
        "experiment=3",
        "callbacks=[search,nope]",
        "init=3",
    ),
    *("init=/dev/null", "init=[]", "init=nan", "operations=3", "operations=[3]", "operations=[os.system]"),
    *(
        "operations=null",
        "dataset=image_folder",
        "+dataset.root=3",
        "dataset.root=/dev/null",
        "=",
        "==",
        "+",
        "~",
    ),
    *("a=b=c", "strategy=darts,gdas", "seed=range(3)", "seed=choice(1,2)", "strategy.lr=interval(0,1)"),
    *("seed=1 seed=2", "'", '"', "{", "]", "seed=glob(*)", "@", "strategy@x=darts", "strategy=[darts,gdas]"),
    *("ensemble=runs", "ensemble=null", "ensemble.count=0", "dataset.shape=[1,100000,100000]"),
    *(
        "dataset.shape=[a,8,8]",
        "dataset.shape=[1,8,100000]",
        "dataset.num_classes=0",
        "dataset.train_size=1e12",
    ),
    *("dataset.train_size=1000000000000", "supernet.channels=10000000", "network.cells=10000000"),
    *("network.channels=100000000", "supernet.cells=1000000000", "dataset.batch_size=100000000000"),
    *(f"limits.{cost}={'9' * 32}" for cost in ("params", "macs", "memory_mb")),
    *("retrain.warmup_epochs=5", "strategy.warmup_epochs=5", "callbacks.best.monitor=nope"),
    *("callbacks.divergence.monitor=nope", "callbacks.checkpoint.monitor=nope", "retrain.opt=nope"),
    *(
        "retrain.opt=lbfgs",
        "retrain.opt=adafactor",
        "retrain.momentum=nan",
        "callbacks.checkpoint.dirpath=/proc/x",
    ),
    *(
        "logger.csv.folder=/proc/x",
        "callbacks.history.folder=/proc/x",
        "callbacks.signals.requeue_signal=SIGNOPE",
    ),
    *(
        "callbacks.checkpoint.every_n_epochs=-1",
        "callbacks.checkpoint.filename=a/../../b",
        "trainer.precision=64",
    ),
)
"""What belongs to one of them, or is no setting at all."""


CELLS = [
    f"|{op}~0|+|none~0|none~1|+|none~0|none~1|none~2|"
    for op in ("none", "skip_connect", "nor_conv_3x3", "avg_pool_3x3")
]
FILES = {
    "genotype": ("genotype.json", '{"space": "nasbench201", "notation": "|none~0|"}'),
    "table": ("table.csv", "arch,accuracy\n1,2\n"),
    "device": ("phone.csv", "genotype,phone\n" + "".join(f"{cell},1.5\n" for cell in CELLS)),
    "pool": ("scores.csv", "arch,ntk_frobenius\n"),
    "yaml": ("mine/strategy/own.yaml", "defaults: [darts]\n"),
    "summary": ("run/summary.json", '{"overrides": [], "metrics": {}, "seconds": 1}'),
    "words": ("run/.hydra/overrides.yaml", "- seed=1\n"),
    "config": ("run/.hydra/config.yaml", "seed: 1\n"),
    "record": ("run/.hydra/hydra.yaml", "hydra: {job: {config_name: search}}\n"),
    "model": ("run/model.safetensors", "\x08\0\0\0\0\0\0\0{}      "),
    "image": ("images/a/0.png", "\x89PNG\r\n\x1a\n"),
}
"""Files that commands are pointed at, and what is nearly one."""
READERS = {
    "genotype": (
        ("train", "genotype=file", "genotype.path=genotype.json"),
        ("train", "init=genotype.json"),
    ),
    "table": (
        ("search", "strategy=random", "benchmark=nasbench201", "benchmark.path=table.csv"),
        ("analyze", "study=correlation", "benchmark.path=table.csv"),
    ),
    "device": (
        ("search", "strategy=random", "limits.device=phone.csv", "limits.latency_ms=2"),
        ("search", "strategy=random", "limits.device=phone.csv:", "limits.latency_ms=2"),
    ),
    "pool": (("search", "strategy=knas", "strategy.pool_size=3", "strategy.pool=scores.csv"),),
    "yaml": (("search", "--config-dir=mine", "strategy=own"),),
    "summary": (("train", "init=run"), ("train", "ensemble=runs", "ensemble.runs=[run]")),
    "words": (("search", "resume=run"),),
    "config": (("search", "resume=run"),),
    "record": (("search", "resume=run"), ("train", "resume=run"), ("analyze", "resume=run")),
    "model": (("train", "init=run"), ("train", "init=run/model.safetensors")),
    "image": (("search", "dataset=image_folder", "dataset.root=images"),),
}
DAMAGES: dict[str, Callable[[str], bytes]] = {
    "empty": lambda text: b"",
    "null": lambda text: b"null",
    "a number": lambda text: b"3",
    "a list": lambda text: b"[]",
    "a list of lists": lambda text: b"[[], [[]]]",
    "deeply nested": lambda text: b"[" * 100_000,
    "deeply nested names": lambda text: b'{"a":' * 50_000,
    "no text": lambda text: b"\xff\xfe\x00\x80",
    "zeros": lambda text: bytes(1000),
    "half": lambda text: text.encode("latin-1")[: len(text) // 2],
    "twice": lambda text: 2 * text.encode("latin-1"),
    "as it is": lambda text: text.encode("latin-1"),
    "a tag": lambda text: b"!!python/object/apply:os.getcwd []",
    "an alias to itself": lambda text: b"&a [*a]",
    "numbers": lambda text: b'{"metrics": {"a": NaN, "b": 1e999}, "overrides": 3, "seconds": -1}',
    "a number of thousands of digits": lambda text: b'{"seconds": ' + b"9" * 5000 + b"}",
    "names that are none": lambda text: b"{1: 2, null: 3, [a]: b}",
}


class Case(NamedTuple):
    """A command, what is typed besides, and a damaged file or run."""

    command: str
    words: tuple[str, ...]
    file: str = ""
    damage: str = ""
    run: Damage | None = None

    def __str__(self) -> str:
        words = " ".join(word if len(word) < 100 else f"{word[:100]}…" for word in self.words)
        return f"[{self.command}] {words!r} {self.file} {self.damage} {self.run or ''}".rstrip()

    @property
    def goes_on(self) -> bool:
        """Whether it goes on with a run."""
        return any(word.startswith("resume=") for word in self.words)


class Answer(NamedTuple):
    """What the command did."""

    code: int | None  # None: an exception came through
    out: str
    err: str
    steps: int
    seconds: float
    changed: tuple[str, ...]
    summaries: tuple[str, ...]
    reason: str


class Hang(BaseException):
    """The command took too long, or waits."""


class AtWork(BaseException):
    """The command has taken as long, and trains."""


class Clock:
    """While it runs, a command that hangs or trains for long is ended by an exception.

    On a machine that others use, too, a minute is a matter of the processor's time; one that waits has none.

    Args:
        steps: how many steps of training there have been.
    """

    def __init__(self, steps: Callable[[], int]) -> None:
        self.steps = steps
        self.start, self.ticks = time.process_time(), [(0.0, 0)]

    def __enter__(self) -> None:
        self.old = signal.signal(signal.SIGALRM, self.tick)
        signal.setitimer(signal.ITIMER_REAL, TICK, TICK)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.old)

    def tick(self, *_: object) -> None:
        """Look what has been done since."""
        used, trained = time.process_time() - self.start, self.steps()
        self.ticks.append((used, trained))
        if used > SECONDS:
            raise AtWork if trained > self.ticks[-2][1] else Hang
        earlier = self.ticks[: -round(SECONDS / TICK)]
        if earlier and used - earlier[-1][0] < WAITING * SECONDS:
            raise Hang


@cache
def setting_names(command: str) -> tuple[str, ...]:
    """Every setting of a command's configuration, and every part that has settings."""
    script, *words = COMMANDS[command]
    with Composer(script) as composer:
        config = composer.compose([expand_shorthand(script, word, False) for word in words])
    names = [*_names(config, "")]
    hydra = (
        "hydra.run",
        "hydra.sweep",
        "hydra.job",
        "hydra.mode",
        "hydra.sweeper",
        "hydra.launcher",
        "hydra.verbose",
    )
    return tuple(name for name in names if not name.startswith("hydra") or name.startswith(hydra))


def _names(config: Any, prefix: str) -> Iterator[str]:
    for key, value in config.items_ex(resolve=False):
        yield f"{prefix}{key}"
        if isinstance(value, DictConfig) and not value._is_none() and not value._is_interpolation():
            yield from _names(value, f"{prefix}{key}.")


@st.composite
def damaged_files(draw: st.DrawFn) -> Case:
    """A command that is pointed at a damaged file."""
    file = draw(st.sampled_from(sorted(FILES)))
    script, *words = draw(st.sampled_from(READERS[file]))
    data = TINY_SEARCH if script == "search" else TRAINING
    small = () if words[0].startswith("resume=") else QUICK[:1] if file == "image" else (*data, *QUICK[:1])
    return Case(script, (*small, *words), file, draw(st.sampled_from([*sorted(DAMAGES), PIPE])))


@st.composite
def broken_runs(draw: st.DrawFn) -> Case:
    """An installed command that is pointed at a broken run."""
    damage, (entry, *words) = draw(damages(sorted(DAMAGES)))
    return Case(entry, tuple(words), run=damage)


def flags() -> st.SearchStrategy[Case]:
    """An installed command with flags that are typed wrong."""
    return st.sampled_from(FLAGS).map(lambda words: Case(words[0], tuple(words[1:])))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A command with one thing wrong, now and then two."""
    command = draw(st.sampled_from(sorted(COMMANDS)))
    words = draw(
        st.lists(_words(command), min_size=1, max_size=2)
        if draw(st.integers(0, 5)) == 0
        else st.tuples(_words(command))
    )
    return Case(command, tuple(words))


def _words(command: str) -> st.SearchStrategy[str]:
    key = st.sampled_from(setting_names(command))
    assign = st.builds("{}={}".format, key, st.sampled_from(VALUES))
    itself = st.builds("{0}=${{{0}}}".format, key)
    add = st.builds("+{}.x={}".format, key, st.sampled_from(("1", "null")))
    delete = st.builds("~{}".format, key)
    return st.one_of(assign, assign, assign, assign, itself, add, delete, st.sampled_from(MORE))


def contents(folder: Path) -> dict[str, bytes]:
    """The files in there, with their bytes; of a run that is locked the lock says nothing."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """In that folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def answer(case: Case, folder: Path) -> Answer:
    """Run it in that folder, in this process."""
    steps = 0
    script, *words = COMMANDS.get(case.command, (case.command,))
    run_words = run_entry if script in entries() else run_script
    if case.file:
        path, text = FILES[case.file]
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if case.damage == PIPE:
            os.mkfifo(folder / path)
        else:
            (folder / path).write_bytes(DAMAGES[case.damage](text))
    elif script in entries():
        whole = DAMAGES.get(case.run.how) if case.run else None
        place_runs(folder, case.run, case.goes_on, whole and (lambda b: whole(b.decode("latin-1"))))
    before = contents(folder)

    def count(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal steps
        steps += 1
        return advance(self, *args, **kwargs)

    advance = _TrainingEpochLoop.advance
    out, err, reason = io.StringIO(), io.StringIO(), ""
    code: int | None = None
    start = time.monotonic()
    try:
        with (
            Clock(lambda: steps),
            _inside(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(_TrainingEpochLoop, "advance", count),
        ):
            code = run_words(script, *words, *case.words)
    except Hang:
        reason = "hangs"
    except AtWork:
        code = 0
    except BaseException:
        reason = traceback.format_exc()
    after = contents(folder)
    changed = tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))
    summaries = tuple(after[name].decode() for name in changed if name.endswith("summary.json"))
    return Answer(
        code, out.getvalue(), err.getvalue(), steps, time.monotonic() - start, changed, summaries, reason
    )


def complaint(case: Case, given: Answer) -> str | None:
    """What is wrong with the answer: None where it is a run or one line."""
    if given.reason:
        return given.reason
    if given.code == 0:
        return _accepted(case, given)
    lines = given.err.strip().splitlines()
    if given.code not in (1, 2):
        return f"exit code {given.code}"
    if len(lines) != 1 or not lines[0].startswith("error: expected "):
        return f"not one line: {given.err[-1500:]}"
    if len(lines[0]) > 700:
        return f"a line of {len(lines[0])} characters: {lines[0][:300]}"
    if given.steps and not any(words in lines[0] for words in LATE):
        return f"found after {given.steps} steps: {lines[0]}"
    if given.changed and not given.steps and not case.goes_on:
        return f"refused, and wrote {given.changed}: {lines[0]}"
    return None


def _accepted(case: Case, given: Answer) -> str | None:
    for text in given.summaries:
        numbers = re.findall(r"\b(NaN|Infinity)\b", text)
        if numbers:
            return f"bare {numbers[0]} in summary.json"
    ended = [word for word in case.words if word.endswith(tuple(f"={value}" for value in NOT_FINITE))]
    if ended and not ended[0].startswith(FREE_TEXT) and not ended[0].split("=")[0].endswith(NAMES):
        return f"accepted: {ended[0]}"
    return None


LATE = ("lower the learning rate", "expected the name of a metric")
"""What no start can know: where a loss goes, and which names a first epoch logs, of anybody's parts."""
NAMES = ("path", "folder", "filename", "name", "pool", "root", "label")
FREE_TEXT = ("run", "objective", "hydra.run.dir", "hydra.sweep", "hydra.job")


GENERATORS = {"settings": cases(), "files": damaged_files(), "runs": broken_runs(), "flags": flags()}
_OFTEN = {"settings": 6, "files": 2, "runs": 4, "flags": 1}
GENERATORS["all"] = st.one_of(*(kind for name, kind in GENERATORS.items() for _ in range(_OFTEN[name])))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the long form; the count comes last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=sorted(GENERATORS), default="all", help="of cases")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    for kind in KINDS:  # before cases are drawn, which their random numbers would change
        source(kind)
    complaints, refused, total = [], 0, 0

    @seed(options.seed)
    @settings(
        max_examples=options.cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(GENERATORS[options.kind])
    def run(case: Case) -> None:
        nonlocal refused, total
        with tempfile.TemporaryDirectory() as folder:
            given_answer = answer(case, Path(folder))
        total += 1
        refused += given_answer.code != 0
        if not total % 100:
            print(f"{total} cases, {len(complaints)} complaints", flush=True)
        if wrong := complaint(case, given_answer):
            complaints.append(case)
            print(f"✗ {case}\n    {wrong.strip()[-1500:]}", flush=True)

    run()
    print(f"{total} cases, {refused} refused, {len(complaints)} complaints")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
