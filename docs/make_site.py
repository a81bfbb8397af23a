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
from nas_lightning.options import config_folder, groups, option_file

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


def options() -> dict[str, str]:
    """Return the pages of the command line's options: a list of groups, and a page for each group."""
    parts = [
        "# Options of the command line\n",
        "`group=option` chooses an option: `strategy=darts`. Settings of an option are `key=value`: "
        "`strategy.lr=0.1`. `nas-search --cfg job` prints all settings of a command.\n",
        "| group | options |",
        "|---|---|",
    ]
    found = {}
    for group, lines in groups().items():
        names = ", ".join(f"`{name}`" for name in lines)
        parts.append(f"| [{group}](options_{group}.md) | {names} |")
        found[f"options_{group}.md"] = "\n".join(
            [f"# {group}\n", *(option(group, name, line) for name, line in lines.items())]
        )
    for script in ("search", "train", "analyze"):
        text = (config_folder() / f"{script}.yaml").read_text(encoding="utf-8")
        parts += [f"\n## nas-{script}\n", f"```yaml\n{text.rstrip()}\n```"]
    return {"options.md": "\n".join([*parts, ""]), **found}


def option(group: str, name: str, line: str) -> str:
    """Return the section of an option: its first comment, and its settings."""
    text = option_file(group, name).read_text(encoding="utf-8")
    settings = re.sub(r"\A(#.*\n)+", "", text).strip()
    block = f"\n```yaml\n{settings}\n```\n" if settings else ""
    return f"## {group}={name}\n\n{line}\n{block}"


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
    for name, text in options().items():
        write(f"reference/{name}", text)
    for package in PACKAGES:
        write(f"reference/{package}.md", reference(package))
    links = [f"- [{package}]({package}.md): {summary(package)}" for package in PACKAGES]
    write("reference/api.md", "\n".join(["# Classes and functions\n", *links, ""]))


if __name__ == "__main__":
    main()
