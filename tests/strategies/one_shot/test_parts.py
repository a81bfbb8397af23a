"""The table of docs/one_shot.md by which parts of one's own are written."""

import re
from pathlib import Path

from nas_lightning import strategies
from tests.strategies.one_shot.parts_by_name import GROUPS
from tests.yamls import file, options

PAGE = (Path(__file__).parents[3] / "docs" / "one_shot.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| `(\w+)`[^|]*\| ([^|]+) \| ([^|]+) \|$", re.M)
ROWS = ROW.findall(PAGE)


def test_table_lists_all_groups():
    assert {group for group, *_ in ROWS} == {*GROUPS, "derivation"}


def test_table_lists_abstract_methods():
    for _, base, methods, _ in ROWS:
        assert set(re.findall(r"`(\w+)`", methods)) == getattr(strategies, base).__abstractmethods__


def test_first_lines_of_yamls_match_the_table():
    for group, _, _, cell in ROWS:
        line = cell.strip("`")
        for option in options(group):
            text = file(group, option).read_text(encoding="utf-8")
            if "_target_" in text and not text.startswith(
                "# @package _global_"
            ):  # which sets more than the part
                first = text.splitlines()[0].replace(f".{option}", ".<name>")
                assert first == line or (line == "none" and "@package" not in first), option
