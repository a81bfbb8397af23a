"""Runs with damaged files, and invalid arguments of the commands that read runs.

A finished search, training, ensemble, and study are created once. Each case gets a copy with one file that is
replaced, cut, or changed in one of its parts.
"""

from __future__ import annotations

import atexit
import configparser
import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hypothesis import strategies as st

from tests.cli.conftest import (
    REPOSITORY,
    TINY_DATA,
    TINY_NETWORK,
    TINY_SEARCH,
    process_state,
    run_script,
)

PIPE = "is a pipe"
"""A pipe, which blocks whoever opens it."""
QUICK = ("trainer.max_epochs=1", "callbacks.history.figures=false", "callbacks.progress=null")
TRAINING = (*TINY_DATA, *TINY_NETWORK, *QUICK[::2])
KINDS = {
    "search": ("search", *TINY_SEARCH, *QUICK, "strategy=darts"),
    "training": ("train", *TRAINING, "genotype=nasbench201_best"),
    "ensemble": ("train", *TRAINING, "genotype=nasbench201_best", "ensemble=deep", "ensemble.count=2"),
    "study": (
        *("analyze", *TINY_DATA, *TINY_NETWORK, "study=short_trainings", "study.cells=4", "study.epochs=1"),
        "trainer.max_epochs=1",
    ),
}
"""Commands that create the runs."""
_TABLE = ("nas-table", "broken")
_PAGE = ("nas-report", "broken")
_ARMS = ("nas-compare", "broken", "good", "--baseline", "darts", "--out", "out")
_ATTACKS = ("study=defense", "study.images=4", "study.settings.pgd.steps=1", "study.settings.cw.steps=1")
_EXPORT = ("nas-export", "broken", "out.pt2")
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "search": (
        *(_TABLE, _PAGE, ("nas-report", "broken", "good", "--out", "both.html"), _EXPORT, _ARMS),
        ("nas-search", "resume=broken"),
        ("nas-train", *TRAINING, "genotype=file", "genotype.path=broken"),
        ("nas-train", *TRAINING, "genotype=file", "genotype.path=broken", "ensemble=all"),
    ),
    "training": (
        *(_TABLE, (*_TABLE, "good", "--format", "csv"), (*_TABLE, "--format", "latex"), _ARMS),
        *(_PAGE, ("nas-report", "good", "broken"), _EXPORT, ("nas-train", "resume=broken")),
        ("nas-export", "broken/model.safetensors", "out.pt2", "--input", "normalized", "--batch", "1"),
        ("nas-train", *TRAINING, "pretrained=broken"),
        ("nas-train", *TRAINING, "ensemble=runs", "ensemble.runs=[broken,good]"),
        ("nas-search", "resume=broken"),
    ),
    "ensemble": (
        *(_TABLE, _PAGE, _EXPORT, ("nas-train", "resume=broken"), ("nas-report", "broken", "good")),
        ("nas-analyze", *TINY_DATA, *_ATTACKS, "study.ensemble=broken"),
        ("nas-train", *TRAINING, "ensemble=runs", "ensemble.runs=[broken]"),
    ),
    "study": (_TABLE, _PAGE, ("nas-analyze", "resume=broken"), ("nas-report", "broken", "good")),
}
"""Commands that read each run; for `resume=`, the summary is removed."""

PARTS: dict[str, Any] = {
    **{"null": None, "3": 3, "-1": -1, "a half": 0.5, "nan": float("nan"), "infinity": float("inf")},
    **{"true": True, "a text": "x", "no text": "", "a list": [3], "an empty list": [], "nothing": {}},
    **{"a mapping": {"a": 1}, "a page": "x" * 20_000, "control characters": "\x1b[2J\0\n", "a path": "../x"},
    **{"a formula": "=1+1", "1e300": 1e300, "a great number": 10**30, "an enormous number": 10**400},
    **{"deep": json.loads("[" * 300 + "]" * 300), "mixed": [None, {"a": [1.5]}, "b"]},
}
"""Replacements of a part of a file."""
FLAGS = (
    *(("nas-table",), ("nas-table", "nowhere"), ("nas-table", "good", "--format", "nope")),
    *(("nas-table", "good", "good"), ("nas-table", "--nope"), ("nas-table", "good/summary.json")),
    *(("nas-table", ""), ("nas-table", "\0"), ("nas-table", "/dev/null"), ("nas-table", "x" * 5000)),
    *(("nas-table", "/proc"), ("nas-table", "."), ("nas-report", "."), ("nas-report", "/proc/self")),
    *(("nas-compare",), ("nas-compare", "nowhere"), ("nas-compare", "good", "--by", "")),
    *(("nas-compare", "\0"), ("nas-compare", "/proc"), ("nas-compare", ".", "--over", "x" * 300)),
    *(
        ("nas-compare", "good", "--by", ","),
        ("nas-compare", "good", "--metric", ""),
        ("nas-compare", "--out"),
    ),
    *(("nas-report",), ("nas-report", "nowhere"), ("nas-report", "nowhere", "good"), ("nas-report", "\0")),
    *(("nas-report", "good", "good"), ("nas-report", "good", "good/../good"), ("nas-report", "--out")),
    *(
        ("nas-report", "good", "mine", "--out", place)
        for place in ("", "/proc/x.html", "good", "/dev/null/x", "\0", "mine/kept.txt/x", "x" * 300)
    ),
    *(
        ("nas-export",),
        ("nas-export", "good"),
        ("nas-export", "nowhere", "x.pt2"),
        ("nas-export", "", "x.pt2"),
    ),
    *(
        ("nas-export", "good", place)
        for place in ("x.txt", "", "/proc/x.pt2", "good", "mine/kept.txt/x.pt2", "\0.pt2", "x" * 300 + ".pt2")
    ),
    *(
        ("nas-export", "good", "x.pt2", "--batch", number)
        for number in ("0", "-1", "nan", "9" * 30, "1_0", "²", "", "1e3")
    ),
    *(
        ("nas-export", "good", "x.pt2", flag, value)
        for flag in ("--config-dir", "--operation", "--dynamic-size", "--nope")
        for value in ("nowhere", "os.system", "", "\0")
    ),
    *(
        ("nas-predict",),
        ("nas-predict", "good"),
        ("nas-predict", "nowhere", "mine"),
        ("nas-predict", "good", ""),
    ),
    *(
        ("nas-predict", "good", place)
        for place in ("mine", "mine/kept.txt", "\0", "/proc/self/mem", "/dev/null")
    ),
    *(
        ("nas-predict", "good", "mine", flag, value)
        for flag, value in (
            *(("--batch", "0"), ("--batch", "nan"), ("--batch", "9" * 30), ("--device", "abacus")),
            *(("--device", ""), ("--masks", "nowhere"), ("--out", "/proc/x"), ("--out", "mine/kept.txt/x")),
            *(("--runtime", "nope"), ("--operation", "os.system"), ("--module", "\0"), ("--out", "")),
        )
    ),
    *(
        ("nas-latency", word)
        for word in (
            *(
                "study.device=3",
                "study.networks=3",
                "study.judged=0",
                "study.runtime=nope",
                "study.clock=nope",
            ),
            *(
                "study.least_ms=nan",
                "study.least_ms=1e300",
                "study.threads=0",
                "study.rounds=1",
                "study.seed=-1",
                "study=front",
                "-m",
            ),
        )
    ),
)
"""Invalid arguments of the commands that read runs."""


class Damage(NamedTuple):
    """A damaged file of a run: `how` is applied to the part with that number."""

    kind: str
    file: str
    how: str
    place: int = 0

    def __str__(self) -> str:
        return f"{self.kind}'s {self.file}: {self.how} at {self.place}"


@cache
def entries() -> dict[str, Callable[[], object]]:
    """Return the entry points of the installed commands by name."""
    parser = configparser.ConfigParser()
    parser.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    lines = parser["options.entry_points"]["console_scripts"].strip().splitlines()
    found = {}
    for line in lines:
        name, _, target = (part.strip() for part in line.partition("="))
        module, _, function = target.partition(":")
        found[name] = getattr(importlib.import_module(module), function)
    return found


def run_entry(name: str, *words: str) -> int:
    """Return the exit code of an installed command; print its message to stderr, as Python does."""
    with process_state():
        sys.argv[:] = [name, *words]
        try:
            entries()[name]()
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
                return 1
            return end.code or 0
        return 0


@cache
def source(kind: str) -> Path:
    """Return the folder of a finished run of a kind."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script, *words = KINDS[kind]
    if run_script(script, *words, f"run={folder / kind}"):
        raise RuntimeError(f"expected a run to break: {kind}")
    return folder / kind


@cache
def files(kind: str) -> tuple[str, ...]:
    """Return the contents of a run's files by relative path."""
    run = source(kind)
    found = (str(p.relative_to(run)) for p in sorted(run.rglob("*")) if p.is_file())
    return tuple(name for name in found if not name.endswith((".log", ".svg", ".html", ".png", ".lock")))


@st.composite
def damages(draw: st.DrawFn, whole: list[str]) -> tuple[Damage, tuple[str, ...]]:
    """A damaged run and a command that reads it; `whole` are replacements of a whole file."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    file = draw(st.sampled_from(files(kind)))
    hows = [f"becomes {name}" for name in PARTS] if has_parts(file) else []
    how = draw(
        st.sampled_from([*hows, *hows, "is missing", "is a folder", "is a loop", PIPE, "goes", *whole])
    )
    damage = Damage(kind, file, how, draw(st.integers(0, 10_000)))
    return damage, draw(st.sampled_from(COMMANDS[kind]))


def has_parts(file: str) -> bool:
    """Return whether parts of the file can be changed."""
    return file.endswith((".json", ".jsonl", ".yaml", ".csv", ".safetensors"))


def place_runs(
    folder: Path, damage: Damage | None, goes_on: bool, whole: Callable[[bytes], bytes] | None
) -> None:
    """Create an intact run, a damaged one, and an unrelated folder with a file."""
    (folder / "mine").mkdir()
    (folder / "mine" / "kept.txt").write_text("kept")
    shutil.copytree(source("training"), folder / "good")
    if damage is None:
        return
    run = folder / "broken"
    shutil.copytree(source(damage.kind), run)
    file = run / damage.file
    if goes_on and damage.file != "summary.json":
        (run / "summary.json").unlink()
    if damage.how == "is missing":
        file.unlink()
    elif damage.how == "is a folder":
        file.unlink()
        file.mkdir()
    elif damage.how == PIPE:
        file.unlink()
        os.mkfifo(file)
    elif damage.how == "is a loop":
        file.unlink()
        file.symlink_to(file.name)
    elif whole is not None:
        file.write_bytes(whole(file.read_bytes()))
    else:
        _change_part(file, damage)


def _change_part(file: Path, damage: Damage) -> None:
    value = PARTS[damage.how.removeprefix("becomes ")] if damage.how != "goes" else ...
    if file.suffix == ".json":
        file.write_text(_json(changed(json.loads(file.read_text()), damage.place, value)))
    elif file.suffix == ".jsonl":
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        new = changed(lines, damage.place, value)
        entries_ = new if isinstance(new, list) else [new]
        file.write_text("".join(_json(line) + "\n" for line in entries_))
    elif file.suffix == ".yaml":
        file.write_text(yaml.safe_dump(changed(yaml.safe_load(file.read_text()), damage.place, value)))
    elif file.suffix == ".csv":
        cells = [line.split(",") for line in file.read_text().splitlines()]
        new = changed(cells, damage.place, value)
        rows = new if isinstance(new, list) else [[new]]
        file.write_text("".join(",".join(map(str, r if isinstance(r, list) else [r])) + "\n" for r in rows))
    elif file.suffix == ".safetensors":
        _change_header(file, damage.place, value)
    else:
        file.write_bytes(file.read_bytes()[: damage.place])


def _json(value: Any) -> str:
    return json.dumps(value, default=str)


def _change_header(file: Path, place: int, value: Any) -> None:
    """Change a part of the description in a weights file's header, sometimes of the weights."""
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    about = header["__metadata__"]
    if place % 4 and "nas_lightning" in about:
        about["nas_lightning"] = _json(changed(json.loads(about["nas_lightning"]), place, value))
    else:
        header = changed(header, place, value)
    text = _json(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])


def changed(content: Any, place: int, value: Any) -> Any:
    """Return the content with one part, or all of it, replaced; `...` removes the part.

    >>> changed({"a": [1, 2]}, 2, None), changed([1, 2], 1, ...), changed(3, 0, "x")
    ({'a': [None, 2]}, [2], 'x')
    """
    paths = list(_paths(content))
    path = paths[place % len(paths)]
    if not path:
        return None if value is ... else value
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    if value is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return content


def _paths(content: Any) -> Iterator[tuple[Any, ...]]:
    yield ()
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, part in items:
        yield from ((key, *path) for path in _paths(part))
