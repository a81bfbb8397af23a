"""Mutants: a module changed in one place, and whether a test notices.

    python -m tests.weather.mutants [genotype kernel …]

The changes are Cosmic Ray's (`pip install cosmic-ray`). One process collects a room's tests and runs them
once, noting which lines each comes by. Each mutant gets a fork of it, whose functions get the changed code in
place, and runs the tests that come by the changed line, the quickest first, until one fails. Where what runs
at import is changed, the fork is one of a process that has not imported the module yet. A mutant that no
test notices is a survivor: `survivors.md` says of each why it may live. The score comes last.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib
import importlib.util
import inspect
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import coverage
import pytest

REPOSITORY = Path(__file__).parents[2]
SURVIVORS = Path(__file__).with_name("survivors.md")
CRASHED, AT_IMPORT = 70, 71  # exit codes of forks
LEAST = 0.9  # of the mutants, that tests have to notice
ONE_SHOT = "nas_lightning.strategies.one_shot"
SAMPLERS = sorted(
    f"{ONE_SHOT}.samplers.{file.stem}"
    for file in (REPOSITORY / "nas_lightning/strategies/oneshot/samplers").glob("[!_]*.py")
)


class Room(NamedTuple):
    """Modules, and the tests that are theirs besides their own examples."""

    modules: Sequence[str]
    tests: Sequence[str]


ROOMS = {
    "genotype": Room(["nas_lightning.genotype"], ["tests/test_genotype.py"]),
    "checkpoints": Room(["nas_lightning.callbacks.checkpoints"], ["tests/callbacks/test_checkpoints.py"]),
    "resume": Room(
        ["nas_lightning.cli.resume", "nas_lightning.cli.stored_words"],
        ["tests/cli/test_resume.py", "tests/cli/test_stored.py"],
    ),
    "relaxations": Room([f"{ONE_SHOT}.relaxations"], ["tests/strategies/test_relaxations.py"]),
    "samplers": Room(SAMPLERS, ["tests/strategies/one_shot/test_samplers.py"]),
    "kernel": Room(
        [f"nas_lightning.metrics.engine.{name}" for name in ("gram", "kernel", "kernel_matrix")],
        ["tests/metrics/test_kernel.py", "tests/metrics/test_kernel_any.py"],
    ),
}


class Mutant(NamedTuple):
    """A module's text with one change: its line as it was, as it is, and the lines of its statement."""

    text: str
    was: str
    now: str
    lines: range


# Mutants


def mutants(text: str) -> Iterator[Mutant]:
    """All that differ, but for what only type checkers read."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    tree, seen = ast.parse(text), {text}
    statements, unread = _statements(tree), _annotations(tree)
    for name in operator_names():
        operator_class = get_operator(name)
        if operator_class.arguments():
            continue
        nodes = ast_nodes(get_ast(text))
        places = [place for node in nodes for place in operator_class().mutation_positions(node)]
        for number, ((line, column), _) in enumerate(places):
            try:
                changed = mutate_code(text, operator_class(), number)
            except AttributeError:  # the dotted name of an exception, which Cosmic Ray takes for a plain one
                continue
            if changed in seen or any(start <= (line, column) < end for start, end in unread):
                continue
            seen.add(changed)
            before, after = text.splitlines(), changed.splitlines()
            differing = [index for index, pair in enumerate(zip(before, after)) if pair[0] != pair[1]]  # noqa: B905
            index = differing[0] if differing else line - 1
            span = min((s for s in statements if line in s), key=len, default=range(line, line + 1))
            yield Mutant(changed, plain(before[index]), plain(after[index]), span)


def plain(line: str) -> str:
    """A line of code without what differs between ways to write it."""
    return re.sub(r"\s+", " ", line.partition("  # ")[0]).strip().replace("( ", "(").replace("[ ", "[")


def _statements(tree: ast.AST) -> list[range]:
    """The lines of each statement; of one with a body those before it."""
    spans = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = body[0].lineno if body and body[0].lineno > node.lineno else node.end_lineno + 1
            spans.append(
                range(min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]), end)
            )
        if isinstance(node, ast.excepthandler):
            spans.append(range(node.lineno, node.lineno + 1))
    return spans


def _annotations(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    found: list[Any] = []
    for node in ast.walk(tree):
        found += [getattr(node, name, None) for name in ("annotation", "returns")]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found.append(node)
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in found if n is not None]


# A fork


class _InPlace(MetaPathFinder, SourceFileLoader):
    """Finds one module with another text."""

    def __init__(self, name: str, path: Path, text: str) -> None:
        super().__init__(name, str(path))
        self.text = text

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_code(self, fullname: str) -> Any:
        return compile(self.text, self.path, "exec", dont_inherit=True)


def fork(work: Callable[[], int], seconds: float, log: Path) -> int | None:
    """The exit code of `work()` in a fork; None: it took longer, and has been killed with all of its own."""
    child = os.fork()
    if not child:
        os.setsid()
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = CRASHED
        try:
            code = int(work())
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def replace_code(living: Sequence[FunctionType], path: Path, was: str, now: str) -> bool:
    """Give a module's functions the code of another text; False: what runs at its import differs."""
    old, new = (compile(text, str(path), "exec", dont_inherit=True) for text in (was, now))
    if _at_import(old) != _at_import(new):
        return False
    changed = {
        (a.co_name, a.co_firstlineno): b
        for a, b in zip(_functions(old), _functions(new), strict=True)
        if a != b
    }
    found = {(f.__code__.co_name, f.__code__.co_firstlineno): f for f in living}
    if not changed.keys() <= found.keys():
        return False
    for function in living:
        code = function.__code__
        if replacement := changed.get((code.co_name, code.co_firstlineno)):
            function.__code__ = replacement
    return True


def functions_of(path: Path) -> list[FunctionType]:
    """All that a module has made, wherever they are kept."""
    functions = [
        thing for thing in gc.get_objects() if type(thing) is FunctionType
    ]  # others may act when asked
    return [function for function in functions if function.__code__.co_filename == str(path)]


def _functions(code: CodeType) -> list[CodeType]:
    """Of a module and its classes, without those within functions."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [f for c in inner for f in ([c] if c.co_flags & inspect.CO_OPTIMIZED else _functions(c))]


def _at_import(code: CodeType) -> tuple[Any, ...]:
    """What runs when a module is imported."""
    parts: list[Any] = []
    for part in code.co_consts:
        if not isinstance(part, CodeType):
            parts.append((type(part), part))
        elif not part.co_flags & inspect.CO_OPTIMIZED:
            parts.append(_at_import(part))
    return (code.co_code, code.co_names, parts)


# The tests of a room


class Runner:
    """A plugin of pytest: runs all tests once, then those that come by each mutant's lines, each in a fork.

    Args:
        room: whose tests they are.
        changed: the mutants, by their module.
        folder: for what is noted.
    """

    def __init__(self, room: Room, changed: Mapping[str, Sequence[Mutant]], folder: Path) -> None:
        self.changed, self.folder, self.failure = changed, folder, ""
        self.paths = {name: path_of(name) for name in room.modules}
        self.functions: dict[str, list[FunctionType]] = {}
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, list[str]]] = {}
        self.living: list[tuple[str, int]] = []
        self.left: list[tuple[str, int, list[str]]] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In the place of pytest's own."""
        items = {item.nodeid: item for item in session.items}
        self._watch(items)
        self.functions = {name: functions_of(path) for name, path in self.paths.items()}
        gc.freeze()  # forks share what is not looked at
        for module, several in self.changed.items():
            for number, mutant in enumerate([unchanged(module), *several]):
                self._try(module, number, mutant, items)
        ours = ("nas_lightning", "tests", "conftest", "test_", "__")
        libraries = [name for name, found in sys.modules.items() if found and not name.startswith(ours)]
        found = [self.living, self.left, self.seconds, libraries]
        (self.folder / "found.json").write_text(json.dumps(found))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what failed."""
        if report.failed:
            self.failure = self.failure or str(report.longrepr) or "failed"

    def _run(self, items: Sequence[pytest.Item]) -> str:
        """The first failure's text."""
        self.failure = ""
        for number, item in enumerate(items):
            following: Any = items[number + 1] if number + 1 < len(items) else _Session(item)
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failure:
                break
        return self.failure

    def _watch(self, items: Mapping[str, pytest.Item]) -> None:
        cover = coverage.Coverage(
            data_file=None, config_file=False, include=[str(path) for path in self.paths.values()]
        )
        cover.start()
        for name, item in items.items():
            cover.switch_context(name)
            start = time.monotonic()
            if failed := self._run([item]):
                raise RuntimeError(f"expected tests that pass: {failed}")
            self.seconds[name] = time.monotonic() - start
        cover.stop()
        self.lines = {name: cover.get_data().contexts_by_lineno(str(p)) for name, p in self.paths.items()}

    def _try(self, module: str, number: int, mutant: Mutant, items: Mapping[str, pytest.Item]) -> None:
        """Number 0 is the module as it is, which no test may notice."""
        names = {name for line in mutant.lines for name in self.lines[module].get(line, [])} - {""}
        names |= {_example(module)} if names else {*items}  # what a doctest comes by is not seen
        chosen = sorted(names, key=lambda name: self.seconds[name])

        def work() -> int:
            path = self.paths[module]
            was = path.read_text(encoding="utf-8")
            if not replace_code(self.functions[module], path, was, mutant.text):
                return AT_IMPORT
            return int(bool(self._run([items[name] for name in chosen])))

        log = self.folder / "forks.log"
        code = fork(work, 60 + 20 * sum(self.seconds[name] for name in chosen), log)
        if number == 0 and code != 0:
            raise RuntimeError(f"expected tests that pass in a fork: {log.read_text()[-2000:]}")
        if code == AT_IMPORT:
            self.left.append((module, number - 1, chosen))
        elif code == 0 and number:
            self.living.append((module, number - 1))


class _Session:
    """What comes after the last test, whose own fixtures go while those of the session stay."""

    def __init__(self, item: pytest.Item) -> None:
        self.session = item.session

    def listchain(self) -> list[pytest.Session]:
        return [self.session]


def unchanged(module: str) -> Mutant:
    """A module as it is."""
    return Mutant(path_of(module).read_text(encoding="utf-8"), "", "", range(0))


def path_of(module: str) -> Path:
    """The file of a module of ours."""
    return REPOSITORY / f"{module.replace('.', '/')}.py"


def _example(module: str) -> str:
    return f"tests/test_package.py::test_documentation_examples_run[{module}]"


def _arguments(room: Room, folder: Path) -> list[str]:
    return [
        *("-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", f"--basetemp={folder / 'tests'}"),
        *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of what the first process has imported
        *(*room.tests, *map(_example, room.modules)),
    ]


class _Chosen:
    """A plugin of pytest that runs these tests only, in this order."""

    def __init__(self, names: Sequence[str]) -> None:
        self.order = {name: number for number, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])


def survivors(room: Room, changed: Mapping[str, Sequence[Mutant]]) -> Iterator[tuple[str, Mutant]]:
    """The mutants that no test notices, by their module."""
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "all.log"

        def run_all() -> int:
            for module in room.modules:
                importlib.import_module(module)
            return int(pytest.main(_arguments(room, folder), plugins=[Runner(room, changed, folder)]))

        if fork(run_all, 6 * 3600, log) != 0:
            sys.exit(f"error: expected tests that pass:\n{log.read_text()[-3000:]}")
        living, left, seconds, libraries = json.loads((folder / "found.json").read_text())
        yield from ((module, changed[module][number]) for module, number in living)
        for library in libraries:
            with contextlib.suppress(Exception):
                importlib.import_module(library)
        for module, number, chosen in left:
            mutant = changed[module][number]

            def run_one(module: str = module, mutant: Mutant = mutant, chosen: Sequence[str] = chosen) -> int:
                sys.meta_path.insert(0, _InPlace(module, path_of(module), mutant.text))
                importlib.import_module(module)
                return int(pytest.main(_arguments(room, folder), plugins=[_Chosen(chosen)]))

            if fork(run_one, 120 + 20 * sum(seconds[name] for name in chosen), log) == 0:
                yield module, mutant


def reasons() -> dict[tuple[str, str, str], str]:
    """What `survivors.md` says, by (module, line, changed line)."""
    found, module = {}, ""
    for line in SURVIVORS.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            module = line.removeprefix("## ").strip("` ")
        elif row := re.fullmatch(r"\| `` (.*?) `` \| `` (.*?) `` \| (.+) \|", line):
            found[module, row[1], row[2]] = row[3]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run them; the score comes last, and is the exit code's reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rooms", nargs="*", default=list(ROOMS), help=", ".join(ROOMS))
    parser.add_argument("--most", type=int, help="so many of a module, drawn; all by default")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    options = parser.parse_args(argv)
    os.chdir(REPOSITORY)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    total, living, explained = 0, 0, reasons()
    without: list[Mutant] = []
    for name in options.rooms:
        room, start = ROOMS[name], time.monotonic()
        changed = {module: _drawn(module, options.most, options.seed) for module in room.modules}
        count, alive = sum(map(len, changed.values())), 0
        for module, mutant in survivors(room, changed):
            alive += 1
            reason = explained.get((module, mutant.was, mutant.now))
            without += [] if reason else [mutant]
            row = f"| `` {mutant.was} `` | `` {mutant.now} `` | {reason or '✗'} |"
            print(f"{module}:{mutant.lines.start} {row}", flush=True)
        print(f"{name}: {count - alive} of {count} noticed, {time.monotonic() - start:.0f} s", flush=True)
        total, living = total + count, living + alive
    score = (total - living) / total
    print(f"{total - living} of {total} noticed: {score:.1%}; {len(without)} survivors without a reason")
    return int(score < LEAST or bool(without))


def _drawn(module: str, most: int | None, seed: int) -> list[Mutant]:
    every = list(mutants(path_of(module).read_text(encoding="utf-8")))
    return every if most is None else random.Random(seed).sample(every, min(most, len(every)))


if __name__ == "__main__":
    sys.exit(main())
