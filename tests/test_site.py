"""The site: every page is in the navigation, and every link leads somewhere."""

import re

import pytest
import yaml

from docs import make_site

MKDOCS = (make_site.REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("build") / "site"
        patch.setattr(make_site, "SITE", folder)
        make_site.main()
    return folder


def test_every_page_is_in_the_navigation(site):
    named = {page for group in yaml.safe_load(MKDOCS)["nav"] for pages in group.values() for page in pages}
    pages = {str(page.relative_to(site)) for page in site.rglob("*.md")}
    assert named == {page for page in pages if not page.startswith("reference/")} | {"reference/index.md"}


def test_links_lead_to_pages_and_pictures(site):
    links = []
    for page in [*site.glob("*.md"), *site.glob("tutorials/*.md")]:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        links += [page.parent / link for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", text)]
    assert len(links) > 60
    assert [link for link in links if not link.exists()] == []


def test_the_reference_has_the_public_names(site):
    for package, name in {"strategies": "PRDarts", "spaces": "DartsSpace", "tasks": "MultiClass"}.items():
        text = (site / "reference" / f"{package}.md").read_text(encoding="utf-8")
        assert f"::: nas_lightning.{package}.{name}\n" in text
