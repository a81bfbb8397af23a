"""DARTS' own notation of a genotype, read without evaluating it and written as others' code expects it."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from nas_lightning.errors import InputError, near_match
from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.ops import NONE, OPS

_EXPECTED = (
    "expected Genotype(normal=[('sep_conv_3x3', 0), …], normal_concat=[…], reduce=[…], reduce_concat=[…])"
)


def parse(text: str | Mapping[str, Any], space: str, inputs: int) -> Genotype:
    """The genotype in `text`: two (operation, source) pairs per inner node, in the order of the nodes."""
    fields = _fields(text) if isinstance(text, str) else text
    if "cells" in fields:
        return Genotype.from_dict({"space": space, **fields})
    return Genotype(space, {kind: _cell(fields, kind, inputs) for kind in ("normal", "reduce")})


def render(genotype: Genotype) -> str:
    """The inverse of `parse`."""
    parts = []
    for kind, cell in genotype:
        pairs = [(edge.op, edge.source) for edge in cell.edges]
        parts += [f"{kind}={pairs}", f"{kind}_concat={list(cell.output)}"]
    return f"Genotype({', '.join(parts)})"


def _fields(text: str) -> Mapping[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"{_EXPECTED} or JSON: {error}", got=text) from None
    try:
        statement = ast.parse(text.strip()).body[0]
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
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
            return list(range(*arguments)) if node.func.id == "range" else arguments[0]
        return ast.literal_eval(node)
    except (ValueError, TypeError, IndexError):
        raise InputError(_EXPECTED, got=text) from None


def _cell(fields: Mapping[str, Any], kind: str, inputs: int) -> Cell:
    pairs = fields.get(kind)
    if not isinstance(pairs, (list, tuple)) or not pairs or len(pairs) % 2:
        raise InputError(f"expected {kind!r}: two (operation, source) pairs for every inner node", got=pairs)
    edges = [Edge(*_pair(pair, kind), target=inputs + index // 2) for index, pair in enumerate(pairs)]
    output = fields.get(f"{kind}_concat", range(inputs, inputs + len(pairs) // 2))
    if not isinstance(output, Sequence) or isinstance(output, str):
        raise InputError(f"expected '{kind}_concat' as a list of nodes", got=output)
    return Cell(edges, inputs, output)


def _pair(pair: Any, kind: str) -> tuple[str, int]:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise InputError(f"expected an (operation, source) pair in {kind!r}", got=pair)
    op, source = pair
    if op not in {*OPS, NONE}:
        raise InputError(f"expected an operation in {kind!r} ({near_match(str(op), OPS)})", got=op)
    return op, source
