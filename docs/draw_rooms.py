"""Draws docs/images/rooms.svg: the rooms from the ground up, and how many rooms below each one imports from.

python -m docs.draw_rooms
"""

import ast
from html import escape
from pathlib import Path

from tests.test_rooms import INSIDE, PACKAGE, ROOMS, SMALL_VALUES, imports, room

PICTURE = Path(__file__).parent / "images" / "rooms.svg"
WIDTH, HEIGHT, GAP = 900, 30, 6


def purpose(name: str) -> str:
    """The first sentence of a room's docstring."""
    text = ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text(encoding="utf-8"))) or ""
    return text.split("\n")[0].rstrip(".")


def below(name: str) -> list[str]:
    """The rooms that a room imports from, from the ground up."""
    used = {room(other) for module in INSIDE if room(module) == name for other in imports(module) if other}
    return [other for other in ROOMS if other in used - {name}]


def drawing() -> str:
    """The picture as text."""
    rows = [(name, purpose(name), len(below(name))) for name in reversed(ROOMS)]
    rows.append(("small values", ", ".join(sorted(SMALL_VALUES)), 0))
    lines = []
    for number, (name, what, rooms) in enumerate(rows):
        y = GAP + number * (HEIGHT + GAP)
        uses = f"{rooms} below" if rooms else ""
        lines += [
            f'<rect x="{GAP}" y="{y}" width="{WIDTH - 2 * GAP}" height="{HEIGHT}" rx="4"/>',
            f'<text x="18" y="{y + 20}" font-weight="bold">{escape(name)}</text>',
            f'<text x="130" y="{y + 20}">{escape(what)}</text>',
            f'<text x="{WIDTH - 18}" y="{y + 20}" text-anchor="end">{uses}</text>',
        ]
    height = GAP + len(rows) * (HEIGHT + GAP)
    style = "rect{fill:#eef3f8;stroke:#7d93a8}text{font:13px sans-serif;fill:#1d2730}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">'
    return "\n".join([head, f"<style>{style}</style>", *lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
