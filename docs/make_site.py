"""Gathers the site's pages in build/site: docs/, what lies beside it, and each room's classes and functions.

python -m docs.make_site

`mkdocs.yml` says in what order they stand; Material for MkDocs and Zensical build them alike.
"""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from docs.draw_rooms import purpose
from docs.notebooks import to_markdown
from tests.test_rooms import PACKAGE, ROOMS

REPOSITORY = Path(__file__).parents[1]
SITE = REPOSITORY / "build" / "site"
BESIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "reproductions/papers.md": "papers.md",
    "benchmarks/results/bench.md": "bench.md",
    "benchmarks/results/growth.md": "growth.md",
}


def moved_links(text: str) -> str:
    """Return the text with its links changed for a site where all pages lie in one folder.

    >>> moved_links("[a](docs/search.md#x) [b](../CONTRIBUTING.md) [c](README.md) [d](docs/a.ipynb)")
    '[a](search.md#x) [b](CONTRIBUTING.md) [c](index.md) [d](a.md)'
    >>> moved_links("[a](../reproductions/papers.md) ![b](../docs/images/a.png)")
    '[a](papers.md) ![b](images/a.png)'
    """
    text = text.replace(".ipynb)", ".md)")  # notebooks become pages
    text = re.sub(r"\]\((?:\.\./)*(?:docs/|reproductions/|benchmarks/results/)?", "](", text)
    return re.sub(r"\]\(README\.md", "](index.md", text)


def public_names(room: str) -> Iterator[str]:
    """The dotted names of a room's classes and functions, by the files that define them."""
    for file in sorted((PACKAGE / room).rglob("[!_]*.py")):
        module = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
                yield f"{module}.{node.name}"


def reference(room: str) -> str:
    """A room's page: what it is for, and everything public in it."""
    entries = [f"::: {name}\n    options:\n      heading_level: 2\n" for name in public_names(room)]
    return "\n".join([f"# {room}\n\n{purpose(room)}.\n", *entries])


def write(name: str, text: str) -> None:
    path = SITE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(REPOSITORY / "docs" / "images", SITE / "images")
    shutil.copy(REPOSITORY / "benchmarks" / "results" / "growth.png", SITE)
    for page in (REPOSITORY / "docs").glob("*.md"):
        write(page.name, moved_links(page.read_text(encoding="utf-8")))
    for notebook in (REPOSITORY / "docs" / "tutorials").glob("*.ipynb"):
        text = to_markdown(notebook, SITE / "tutorials" / "shown")
        text = text.replace("](../../", "](../").replace(".ipynb)", ".md)")
        write(f"tutorials/{notebook.stem}.md", text)
    for name, place in BESIDE.items():
        write(place, moved_links((REPOSITORY / name).read_text(encoding="utf-8")))
    for room in ROOMS:
        write(f"reference/{room}.md", reference(room))
    links = [f"- [{room}]({room}.md): {purpose(room)}" for room in ROOMS]
    write("reference/index.md", "\n".join(["# Reference\n", *links, ""]))


if __name__ == "__main__":
    main()
