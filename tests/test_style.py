"""The language of pages, yaml comments, and help: American spelling, and no phrases to be translated."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / "reproductions").glob("**/*.md")),
]
NOTEBOOKS = sorted((REPOSITORY / "docs" / "tutorials").glob("*.ipynb"))
YAMLS = [
    *sorted((REPOSITORY / "conf").rglob("*.yaml")),
    *sorted((REPOSITORY / "reproductions").rglob("*.yaml")),
]

_IZE = (
    *("normal", "optim", "regular", "initial", "organ", "recogn", "summar", "minim", "maxim", "general"),
    *("random", "parallel", "visual", "local", "quant", "util"),
)
AMERICAN = {
    r"(behavi|col|fav|neighb|hon|lab)our": "-or",
    rf"({'|'.join(_IZE)})is(e|es|ed|ing|ation|ations|er|ers)": "-ize",
    r"(analys|paralys)(e|ed|ing)": "-yze",
    r"(def|lic|off)ence": "-ense",
    r"(label|model|cancel|travel|channel|signal)l(ed|ing|er)": "one l",
    r"centre|centred|grey|artefact|judgement|whilst|towards|learnt|programme": "American spelling",
}
PLAIN = {
    r"besides?": "next to, along with",
    r"anew": "again",
    r"foret(ell|ells|old)": "predict",
    r"(go|goes|went|going) on": "continue",
    r"(come|comes|came|coming) to": "say what happens",
    r"one's own": "your own",
    r"of (its|their|his) own": "its own",
    r"stand(s|ing)? for": "represent, mean",
    r"typed (again|beside|next|there|anew|on)": "run again",
    r"what (its|their|his|there|one|nobody|it|they|others) (is|are|has|have|takes|offers?|says?)": "noun",
    r"what is (missing|there|typed|told|not)": "noun",
    r"so many-th|passed over|its room|(is|are) told|no (kin|step|end) of": "say it plainly",
    r"(is|are) (said|asked) (before|of|for)": "active voice",
    r"where (there (is|are) (one|none|any)|they are there|it is there)": "if",
    r"a word more|the words with": "overrides",
    r"nothing but|for it alone|of it alone": "only",
    r"(some|somebody) else's": "from others",
}
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|https?:\S+", re.S)


def problems(text: str) -> list[str]:
    """Return the phrases of a text that break the rules; code and links do not count.

    >>> problems("It goes on in colour. `colour` does not count.")
    ['colour (-or)', 'goes on (continue)']
    """
    text = CODE.sub(" ", text)
    found = []
    for pattern, advice in (AMERICAN | PLAIN).items():
        matches = re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
        found += [f"{' '.join(match[0].split())} ({advice})" for match in matches]
    return found


def comments(text: str) -> str:
    """Return the comments of a yaml."""
    return "\n".join(re.findall(r"(?:^|\s)# ?(.*)$", text, re.MULTILINE))


def prose(notebook: Path) -> str:
    """Return the text of a notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def test_pages():
    found = {path.name: problems(path.read_text(encoding="utf-8")) for path in PAGES}
    assert {name: those for name, those in found.items() if those} == {}


def test_notebooks():
    found = {path.name: problems(prose(path)) for path in NOTEBOOKS}
    assert {name: those for name, those in found.items() if those} == {}


def test_comments_of_yamls():
    found = {
        path.relative_to(REPOSITORY).as_posix(): problems(comments(path.read_text(encoding="utf-8")))
        for path in YAMLS
    }
    assert {name: those for name, those in found.items() if those} == {}


@pytest.mark.parametrize("script", ["search", "train", "analyze"])
def test_help(script):
    done = subprocess.run(
        [sys.executable, f"{script}.py", "--help"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert problems(done.stdout) == []


@pytest.mark.parametrize(
    "text",
    [
        "A sweep of searches stands for its architectures where they are trained",
        "what its class takes besides and no yaml offers",
        "a file goes into its room and the yaml into its group",
        "loaders that are the same whenever they are passed over from the same random numbers",
        "The normaliser's behaviour is analysed beside the centre",
    ],
)
def test_the_check_finds_sentences_that_readers_must_translate(text):
    assert problems(text)
