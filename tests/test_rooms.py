"""The house: each room imports only from the rooms below it, and no two modules import each other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import nas_lightning

PACKAGE = Path(nas_lightning.__file__).parent
SMALL = (
    "version errors flags plain checks files machine randomness text tables genotype options rooms"
    " frozen_map lock signatures lightning_packages progress backends signals"
)
SMALL_VALUES = set(SMALL.split())
ORDER = (
    "spaces data tasks plots metrics cost models benchmarks training runs objectives ensembles predictions"
    " strategies callbacks studies report jobs cli measure"
)
ROOMS = tuple(ORDER.split())
"""From the ground up; docs/architecture.md says what each is for."""


def modules() -> dict[str, Path]:
    """All modules by their name without the package's."""
    parts = {path: path.relative_to(PACKAGE).with_suffix("").parts for path in PACKAGE.rglob("*.py")}
    return {".".join(p for p in names if p != "__init__"): path for path, names in parts.items()}


MODULES = modules()


def imports(name: str) -> Iterator[str]:
    """The modules of the package that a module names in imports, wherever in the file they stand."""
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "nas_lightning":
            base = (node.module or "").partition(".")[2]
            for alias in node.names:
                whole = f"{base}.{alias.name}".strip(".")
                yield whole if whole in MODULES else base
        if isinstance(node, ast.Import):
            yield from (a.name.partition(".")[2] for a in node.names if a.name.startswith("nas_lightning."))


def room(name: str) -> str:
    return name.split(".")[0]


def level(name: str) -> int:
    return -1 if room(name) in SMALL_VALUES else ROOMS.index(room(name))


INSIDE = sorted(name for name in MODULES if name)  # the package itself names what users import


def test_every_module_is_in_a_room() -> None:
    assert {room(name) for name in INSIDE} <= SMALL_VALUES | set(ROOMS)


@pytest.mark.parametrize("name", INSIDE)
def test_a_room_imports_only_from_below(name: str) -> None:
    above = {used for used in imports(name) if used and level(used) > level(name)}
    assert not above, f"{name} stands below {sorted(above)}"


@pytest.mark.parametrize("name", INSIDE)
def test_a_module_is_read_in_one_sitting(name: str) -> None:
    assert len(MODULES[name].read_text(encoding="utf-8").splitlines()) <= 250


def test_no_two_modules_import_each_other() -> None:
    uses = {name: {used for used in imports(name) if used in MODULES and used != name} for name in INSIDE}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            pytest.fail(" → ".join([*path[path.index(name) :], name]))
        if name not in done:
            for used in uses[name]:
                visit(used, (*path, name))
            done.add(name)

    for name in INSIDE:
        visit(name, ())


def test_the_picture_has_these_rooms() -> None:
    """`python -m docs.draw_rooms` draws it anew."""
    picture = (PACKAGE.parent / "docs" / "images" / "rooms.svg").read_text(encoding="utf-8")
    drawn = re.findall(r'font-weight="bold">([^<]+)<', picture)
    assert drawn == [*reversed(ROOMS), "small values"]


def test_the_files_that_the_page_names_are_there() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = re.findall(r"`(\w+(?:/\w+)*(?:\.py|/))`", page.partition("## The way of a command")[2])
    assert len(files) >= 10
    assert not [name for name in files if not (PACKAGE / name).exists()]
