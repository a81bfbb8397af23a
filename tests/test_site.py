"""The site: every page is in the navigation, and every link leads somewhere."""

import re

import pytest
import yaml

from docs import make_site
from tests.yamls import options

MKDOCS = (make_site.REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("build") / "site"
        patch.setattr(make_site, "SITE", folder)
        make_site.main()
    return folder


def listed_pages(entry):
    """Return the pages of a part of the navigation."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in listed_pages(part)]


def test_every_page_is_in_the_navigation(site):
    named = set(listed_pages(yaml.safe_load(MKDOCS)["nav"]))
    pages = {str(page.relative_to(site)) for page in site.rglob("*.md")}
    listed = {"reference/api.md", "reference/options.md"}
    assert named == {page for page in pages if not page.startswith("reference/")} | listed


def test_links_lead_to_pages_and_pictures(site):
    links = []
    for page in [*site.glob("*.md"), *site.glob("tutorials/*.md"), *site.glob("papers/*.md")]:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        links += [page.parent / link for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", text)]
    assert len(links) > 60
    assert [link for link in links if not link.exists()] == []


def test_the_reference_has_the_public_names(site):
    for package, name in {"strategies": "PRDarts", "spaces": "DartsSpace", "tasks": "MultiClass"}.items():
        text = (site / "reference" / f"{package}.md").read_text(encoding="utf-8")
        assert f"::: nas_lightning.{package}.{name}\n" in text


def test_options_have_their_settings(site):
    text = (site / "reference" / "options_strategy.md").read_text(encoding="utf-8")
    assert all(f"## strategy={name}\n" in text for name in options("strategy"))
    assert "\n  population: " in text
    assert "| [strategy](options_strategy.md) |" in (site / "reference" / "options.md").read_text(
        encoding="utf-8"
    )


def test_links_between_pages_work_in_the_repository_too():
    pages = [make_site.REPOSITORY / page for page in make_site.pages() if page.endswith(".md")]
    broken = []
    for page in pages:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        links = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
        broken += [f"{page.name}: {link}" for link in links if not (page.parent / link).exists()]
    assert broken == []


@pytest.mark.parametrize(("group", "page"), [("strategy", "strategies.md"), ("space", "spaces.md")])
def test_pages_list_every_option(group, page):
    text = (make_site.REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    names = [name for name in options(group) if f"`{name}`" not in text]
    assert [name for name in names if f"`{name.removeprefix('nasbench1shot1')}`" not in text] == []
