"""Packages import only from packages below them, and modules do not import each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import nas_lightning

PACKAGE = Path(nas_lightning.__file__).parent
LAYERS = (
    *("spaces", "zoo", "data", "tasks", "plots", "metrics", "training", "runs", "objectives"),
    *("models", "strategies", "callbacks", "studies", "report", "jobs", "cli"),
)
"""From the bottom up; everything else is below them."""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def imports(name: str) -> Iterator[str]:
    """The modules of the package that a module imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield from (found for found in [submodule if submodule in MODULES else node.module])
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def layer(name: str) -> int:
    package = name.split(".")[1]
    return LAYERS.index(package) if package in LAYERS else -1


GRAPH = {
    name: {used for used in imports(name) if used in MODULES and used not in (name, "nas_lightning")}
    for name in MODULES
    if name != "nas_lightning"
}


def test_packages_import_only_from_below() -> None:
    upward = [
        f"{name} imports {used}" for name, uses in GRAPH.items() for used in uses if layer(used) > layer(name)
    ]
    assert not upward


def test_modules_do_not_import_each_other() -> None:
    graph = {name: uses for name, uses in GRAPH.items() if MODULES[name].name != "__init__.py"}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " → ".join([*path[path.index(name) :], name])
        if name not in done:
            for used in graph[name] & graph.keys():
                visit(used, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())
