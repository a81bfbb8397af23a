"""Every class documents its arguments; every class that users name has an example."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import nas_lightning
from nas_lightning.options import config_folder

PACKAGE = Path(nas_lightning.__file__).parent


def public_classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes of the package, by `module.Class`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield f"{module}.{node.name}", node


def is_record(node: ast.ClassDef) -> bool:
    """Whether its arguments are its fields: a dataclass or a named tuple."""
    marks = [*map(ast.unparse, node.decorator_list), *map(ast.unparse, node.bases)]
    return any(mark.startswith(("dataclass", "NamedTuple")) for mark in marks)


def own_arguments(node: ast.ClassDef) -> list[str]:
    """The names that a call of the class takes, those that its bases take left out."""
    if is_record(node):
        fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
        return [ast.unparse(f.target) for f in fields if "ClassVar" not in ast.unparse(f.annotation)]
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            named = [*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs]
            return [argument.arg for argument in named[1:]]
    return []


def explained(module: str, node: ast.ClassDef) -> set[str]:
    """The names under `Args:`, several on a line perhaps, and fields with a comment or a text."""
    listed = (ast.get_docstring(node) or "").partition("Args:\n")[2]
    rows = re.findall(r"^    ([*\w]+(?:, \w+)*):", listed, re.MULTILINE)
    lines = (PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8").splitlines()
    fields = {
        ast.unparse(field.target)
        for field, after in zip(node.body, [*node.body[1:], None], strict=True)
        if isinstance(field, ast.AnnAssign)
        if isinstance(after, ast.Expr) or "  # " in lines[field.lineno - 1]
    }
    return fields | {name for row in rows for name in row.split(", ")}


CLASSES = dict(public_classes())
WITH_ARGUMENTS = {name: node for name, node in CLASSES.items() if own_arguments(node)}


def test_classes_document_their_arguments() -> None:
    missing = {
        name: [argument for argument in own_arguments(node) if argument not in explained(module, node)]
        for name, node in WITH_ARGUMENTS.items()
        for module in [name.rpartition(".")[0]]
    }
    assert len(WITH_ARGUMENTS) > 150
    assert {name: arguments for name, arguments in missing.items() if arguments} == {}


def exported() -> Iterator[Any]:
    """What packages export: `from nas_lightning.spaces import DartsSpace`."""
    for path in sorted(PACKAGE.rglob("__init__.py")):
        parts = path.relative_to(PACKAGE.parent).parent.parts
        package = import_module(".".join(parts))
        yield from (getattr(package, name) for name in getattr(package, "__all__", ()))


def configured() -> Iterator[Any]:
    """What yamls name."""
    for path in sorted(config_folder().rglob("*.yaml")):
        for target in re.findall(r"_target_: (nas_lightning[\w.]+)", path.read_text(encoding="utf-8")):
            package, _, name = target.rpartition(".")
            yield getattr(import_module(package), name)


PUBLIC = {
    f"{item.__module__.partition('.')[2]}.{item.__name__}": item
    for item in [*exported(), *configured()]
    if inspect.isclass(item) and item.__module__.startswith("nas_lightning.")
}


def test_classes_that_users_name_have_an_example() -> None:
    """The examples run in `test_documentation_examples_run`.

    Abstract classes are shown by their subclasses, and classes without arguments of their own, such as papers
    whose parts are attributes, by their base.
    """
    concrete = {name for name in WITH_ARGUMENTS if name in PUBLIC and not inspect.isabstract(PUBLIC[name])}
    assert len(concrete) > 110
    assert [name for name in sorted(concrete) if ">>> " not in (ast.get_docstring(CLASSES[name]) or "")] == []
