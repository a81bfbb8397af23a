"""DARTS' own notation of a genotype, read without evaluating it and written as others' code expects it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.files import parse_json
from nas_lightning.genotype import MOST_NODES, Cell, Edge, Genotype
from nas_lightning.spaces.ops import NONE, find_operation

_EXPECTED = (
    "expected Genotype(normal=[('sep_conv_3x3', 0), …], normal_concat=[…], reduce=[…], reduce_concat=[…])"
)


def read_fields(text: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """What is between the brackets of `Genotype(…)`, or in JSON, by name."""
    fields = _fields(text) if isinstance(text, str) else text
    if not isinstance(fields, Mapping):
        raise InputError(_EXPECTED, got=text)
    return fields


def render(genotype: Genotype) -> str:
    """The inverse of `read_fields` and `read_cell`."""
    parts = []
    for kind, cell in genotype:
        pairs = [(edge.op, edge.source) for edge in cell.edges]
        parts += [f"{kind}={pairs}", f"{kind}_concat={list(cell.output)}"]
    return f"Genotype({', '.join(parts)})"


def _fields(text: str) -> Mapping[str, Any]:
    if text.lstrip().startswith("{"):
        return parse_json(text, f"{_EXPECTED} or JSON")
    try:
        with warnings.catch_warnings():  # the compiler's opinion of a stray backslash
            warnings.simplefilter("ignore")
            (statement,) = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(_EXPECTED, got=text) from None
    call = statement.value if isinstance(statement, (ast.Assign, ast.Expr)) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "Genotype":
        raise InputError(_EXPECTED, got=text)
    names = ("normal", "normal_concat", "reduce", "reduce_concat")
    values = dict(zip(names, call.args, strict=False))
    values.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg})
    return {name: _literal(node, text) for name, node in values.items()}


def _literal(node: ast.expr, text: str) -> Any:
    """A literal, or `range(…)` of literals."""
    try:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("range", "list")
        ):
            arguments = [_literal(argument, text) for argument in node.args]
            return list(range(*arguments)[:MOST_NODES]) if node.func.id == "range" else arguments[0]
        return ast.literal_eval(node)
    except (ValueError, TypeError, IndexError, SyntaxError, RecursionError, MemoryError):
        raise InputError(_EXPECTED, got=text) from None


def read_cell(fields: Mapping[str, Any], kind: str, inputs: int) -> Cell:
    """A cell from two (operation, source) pairs per inner node, in the order of the nodes."""
    pairs = fields.get(kind)
    if not _is_list(pairs) or not pairs or len(pairs) % 2:
        raise InputError(f"expected {kind!r}: two (operation, source) pairs for every inner node", got=pairs)
    edges = [Edge(*_pair(pair, kind), target=inputs + index // 2) for index, pair in enumerate(pairs)]
    output = fields.get(f"{kind}_concat", range(inputs, inputs + len(pairs) // 2))
    if not _is_list(output):
        raise InputError(f"expected '{kind}_concat' as a list of nodes", got=output)
    return Cell(edges, inputs, output)


def _pair(pair: Any, kind: str) -> tuple[str, int]:
    if not _is_list(pair) or len(pair) != 2 or not isinstance(pair[0], str):
        raise InputError(f"expected an (operation, source) pair in {kind!r}", got=pair)
    return pair[0], pair[1]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def check_cell(kind: str, cell: Cell, inputs: int) -> None:
    """Raise unless the cell is one that the notation can say: known operations, two edges into each node."""
    if cell.inputs != inputs:
        raise InputError(f"expected {kind!r} with {inputs} input nodes", got=cell.inputs)
    for node in range(inputs, cell.nodes):
        edges = len(cell.into(node))
        if edges != 2:
            raise InputError(f"expected {kind!r} with two edges into node {node}", got=edges)
    for edge in cell.edges:
        if edge.op != NONE:
            find_operation(edge.op, f"expected an operation in {kind!r}")
