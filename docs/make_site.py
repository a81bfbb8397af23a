"""Gather the pages of the site in build/site: docs/, top-level pages, papers, options, and the API reference.

python -m docs.make_site

`mkdocs.yml` has their order. Material for MkDocs and Zensical build the same site.
"""

import os
import re
import shutil
from importlib import import_module
from pathlib import Path

from docs.notebooks import to_markdown
from nas_lightning.options import config_folder, groups

REPOSITORY = Path(__file__).parents[1]
SITE = REPOSITORY / "build" / "site"
PACKAGES = (
    *("spaces", "data", "tasks", "metrics", "objectives", "strategies", "callbacks", "training"),
    *("models", "zoo", "runs", "report", "plots", "studies"),
)
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)")


def pages() -> dict[str, str]:
    """Return where each page of the repository is on the site."""
    found = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
    found["reproductions/README.md"] = "papers/index.md"
    for path in REPOSITORY.glob("reproductions/*/README.md"):
        found[f"reproductions/{path.parent.name}/README.md"] = f"papers/{path.parent.name}.md"
    found |= {f"docs/{path.name}": path.name for path in REPOSITORY.glob("docs/*.md")}
    found |= {
        f"docs/tutorials/{p.name}": f"tutorials/{p.stem}.md"
        for p in REPOSITORY.glob("docs/tutorials/*.ipynb")
    }
    return found


def site_path(path: str) -> str:
    """Return where a file of the repository is on the site.

    >>> site_path("docs/tutorials/first_search.ipynb"), site_path("docs/images/genotype.png")
    ('tutorials/first_search.md', 'images/genotype.png')
    """
    return pages().get(path, path.removeprefix("docs/"))


def moved_links(text: str, source: str) -> str:
    """Return the text of a page with links between files of the repository changed to links of the site.

    >>> moved_links("[a](docs/search.md#x) [b](CONTRIBUTING.md) [c](https://a.org)", "README.md")
    '[a](search.md#x) [b](CONTRIBUTING.md) [c](https://a.org)'
    >>> moved_links("[a](../../docs/spaces.md) [b](../README.md)", "reproductions/nasi/README.md")
    '[a](../spaces.md) [b](index.md)'
    """
    page = Path(site_path(source)).parent

    def moved(link: re.Match[str]) -> str:
        target = os.path.normpath(Path(source).parent / link[1])
        return f"]({os.path.relpath(site_path(target), page)}"

    return LINK.sub(moved, text)


def options() -> str:
    """Return the page of all options of the command line, by group, from the comments of their yamls."""
    described = {"experiment": "Settings of papers; `experiment=retrain/…` are training recipes"}
    parts = [
        "# Options of the command line\n",
        "`group=option` chooses an option: `strategy=darts`. The settings of an option are in its yaml, and "
        "`python search.py strategy=darts --cfg job` prints all of them. Experiments combine options.\n",
    ]
    for group, found in groups().items():
        parts += [f"## {group}\n"]
        parts += [f"{described[group]}.\n"] if group in described else []
        parts += ["| option | |", "|---|---|"]
        parts += [
            f"| `{group}={name}` | {line.replace('|', chr(92) + '|')} |" for name, line in found.items()
        ]
        parts.append("")
    for script in ("search", "train", "analyze"):
        text = (config_folder() / f"{script}.yaml").read_text(encoding="utf-8")
        parts += [f"## {script}.yaml\n", f"```yaml\n{text.rstrip()}\n```\n"]
    return "\n".join(parts)


def summary(package: str) -> str:
    """Return the first sentence of a package's docstring."""
    text = import_module(f"nas_lightning.{package}").__doc__ or ""
    return text.split("\n")[0].rstrip(".")


def reference(package: str) -> str:
    """Return the reference page of a package: each public name of it."""
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
    for picture in [
        *REPOSITORY.glob("benchmarks/results/*.png"),
        *REPOSITORY.glob("reproductions/**/*.png"),
    ]:
        target = SITE / picture.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, target)
    for source, page in pages().items():
        path = REPOSITORY / source
        if path.suffix == ".ipynb":
            text = to_markdown(path, SITE / "tutorials" / "shown").replace("](shown/", "](docs:shown/")
            write(page, moved_links(text, source).replace("](docs:shown/", "](shown/"))
        else:
            write(page, moved_links(path.read_text(encoding="utf-8"), source))
    write("reference/options.md", options())
    for package in PACKAGES:
        write(f"reference/{package}.md", reference(package))
    links = [f"- [{package}]({package}.md): {summary(package)}" for package in PACKAGES]
    write("reference/index.md", "\n".join(["# Classes and functions\n", *links, ""]))


if __name__ == "__main__":
    main()
