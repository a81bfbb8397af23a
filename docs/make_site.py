"""Gather the pages of the site in build/site: docs/, the top-level pages, and the API reference.

python -m docs.make_site

`mkdocs.yml` has their order. Material for MkDocs and Zensical build the same site.
"""

import re
import shutil
from importlib import import_module
from pathlib import Path

from docs.notebooks import to_markdown

REPOSITORY = Path(__file__).parents[1]
SITE = REPOSITORY / "build" / "site"
PACKAGES = (
    *("spaces", "data", "tasks", "metrics", "objectives", "strategies", "callbacks", "training"),
    *("models", "runs", "report", "plots", "studies"),
)
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


def summary(package: str) -> str:
    """The first sentence of a package's docstring."""
    text = import_module(f"nas_lightning.{package}").__doc__ or ""
    return text.split("\n")[0].rstrip(".")


def reference(package: str) -> str:
    """The reference page of a package: each public name of it."""
    module = import_module(f"nas_lightning.{package}")
    defined = [n for n, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    names = getattr(module, "__all__", [name for name in defined if not name.startswith("_")])
    entries = [
        f"::: nas_lightning.{package}.{name}\n    options:\n      heading_level: 2\n" for name in names
    ]
    return "\n".join([f"# {package}\n\n{summary(package)}.\n", *entries])


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
    for package in PACKAGES:
        write(f"reference/{package}.md", reference(package))
    links = [f"- [{package}]({package}.md): {summary(package)}" for package in PACKAGES]
    write("reference/index.md", "\n".join(["# Reference\n", *links, ""]))


if __name__ == "__main__":
    main()
