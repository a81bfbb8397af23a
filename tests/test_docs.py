"""What the documentation tells people to type is typed here: on smaller networks, for one epoch."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from PIL import Image

from nas_lightning.cli.export import main
from nas_lightning.objectives.latency import Device
from nas_lightning.objectives.tables import all_notations
from nas_lightning.options import comment_words, option_file
from nas_lightning.spaces import NasBench201
from tests.cli.conftest import run_script
from tests.yamls import chosen

REPOSITORY = Path(__file__).parents[1]
REPRODUCTIONS = REPOSITORY / "reproductions" / "conf"
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
SHORT = {
    "search": ("trainer.max_epochs=1", "callbacks.history.figures=false"),
    "train": ("network.channels=4", "network.cells=1", "trainer.max_epochs=1"),
    "analyze": (),
}
DEFAULT = {
    "search": {"strategy": "pr_darts", "space": "darts", "dataset": "digits"},
    "train": {"dataset": "digits"},
    "analyze": {"space": "nasbench201", "dataset": "digits"},
}
ELSEWHERE = (
    "cifar10 ",
    "dataset=cifar10",
    ".parquet",
    "fashion_mnist",
    "-m",
    "resume=",
    "logger=",
    "derivation=",
    "ddp",
    "--help",
    "ensemble=",
    "limits.minutes=",
    "study=inherited",
    "study=temperature",
)
"""Commands with these words need data, devices or time; other tests run their like."""

FILE = re.compile(r"`(my_\w+(?:/[\w/]+)?\.\w+)`[^\n]*\n\n```\w+\n(.*?)```", re.S)
"""A file of a recipe: its path, and what is in it."""


def blocks(page: Path, language: str) -> list[str]:
    """What is to be typed; the files of recipes are written, and what is typed imports them."""
    text = FILE.sub("", page.read_text(encoding="utf-8"))
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def commands() -> list[tuple[str, str]]:
    """What the pages tell to run, each line once; the gallery's lines are run by docs.draw_gallery."""
    pages = [page for page in PAGES if page.name != "gallery.md"]
    scripts = tuple(f"nas-{name}" for name in SHORT)
    found = {
        line.partition("  #")[0].rstrip(): page.name
        for page in pages
        for block in blocks(page, "bash")
        for line in block.splitlines()
        if line.startswith(scripts)
    }
    return sorted((name, line) for line, name in found.items())


def named(text: str) -> str:
    """The runs and folders that the pages speak of, where they are here."""
    text = text.replace("outputs/search/<run>", "searched").replace("outputs/train/<run>", "trained")
    return text.replace("reproductions/conf", str(REPRODUCTIONS))


def short(words: list[str], run: Path) -> list[str]:
    """The command with what its parts' yamls call small, where it says nothing else itself."""
    name = words[0].removeprefix("nas-")
    given = [named(word) for word in words[1:]]
    typed = dict(word.split("=", 1) for word in given if "=" in word)
    parts = dict(DEFAULT[name])
    for group in {"experiment", "study"} & set(typed):
        parts |= chosen(option_file(group, typed[group], [Path("my_conf"), REPRODUCTIONS]))
    parts |= {group: typed[group] for group in {*DEFAULT[name], "study"} & set(typed)}
    own = {group: option for group, option in parts.items() if group in {*DEFAULT[name], "study"}}
    files = [option_file(group, option, [Path("my_conf"), REPRODUCTIONS]) for group, option in own.items()]
    small = [*(word for file in files for word in comment_words(file, "Small")), *SHORT[name]]
    if "network" in typed:  # which has no sizes of a space
        small = [word for word in small if not word.startswith("network.")]
    return [*given, *(word for word in small if word.split("=")[0] not in typed), f"run={run}"]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with what the pages speak of: a search's run, a table, a user's images and own parts."""
    folder = tmp_path_factory.mktemp("docs")
    for number, name in enumerate(("cats", "dogs")):
        for index in range(40):
            path = folder / "my_images" / name / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 32), (100 * number, 5 * index, 0)).save(path)
    accuracies = [f"{arch},{i / 200},{i / 250},{i / 400}" for i, arch in enumerate(sorted(all_notations()))]
    table = "\n".join(["arch,cifar10,cifar100,imagenet16-120", *accuracies, ""])
    (folder / "test_accuracy.csv").write_text(table, encoding="utf-8")
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for target, content in FILE.findall(text):
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_text(content, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        search = ["nas-search", "space=nasbench201"]
        assert run_script("search", *short(search, folder / "searched")) == 0
        images = ["dataset=image_folder", "dataset.root=my_images", "dataset.image_size=32"]
        train = ["nas-train", "genotype=file", "genotype.path=searched", *images]
        assert run_script("train", *short(train, folder / "trained")) == 0
        yield folder
    for name in [name for name in sys.modules if name.startswith("my_nas")]:
        del sys.modules[name]


def test_the_pages_were_found():
    assert len(PAGES) >= 7
    assert len(commands()) >= 8


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_run(page, line, workplace, tmp_path, capsys):
    if any(word in line for word in ELSEWHERE):
        pytest.skip("needs more than a moment; its like is run by another test")
    words = shlex.split(line)
    name = words[0].removeprefix("nas-")
    assert run_script(name, *short(words, tmp_path)) == 0, capsys.readouterr().err
    assert (tmp_path / ("tables" if name == "analyze" else "genotype.json")).exists()


@pytest.mark.filterwarnings("ignore:The number of training batches")  # advice about runs as short as these
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page, workplace, capsys):
    for code in blocks(page, "python"):
        exec(compile(named(code), page.name, "exec"), {"__name__": "__main__"})


@pytest.mark.slow
def test_the_story_of_limits_is_true(workplace, tmp_path, capsys, monkeypatch):
    """Its lines in their order, on networks that take no time: what comes out keeps the limits."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_images").symlink_to(workplace / "my_images")
    (story,) = blocks(REPOSITORY / "docs" / "limits.md", "sh")
    *scripts, export = story.splitlines()
    smaller = {"network.channels": "4", "dataset.image_size": "16", "limits.minutes": "0.05"}
    quick = {
        "analyze": ("study.networks=6", "study.judged=3", "study.rounds=2", "study.clock=processor"),
        "search": ("strategy.images=4", "strategy.population=3", "strategy.agreement=0"),
        "train": ("trainer.max_epochs=1",),
    }
    for line in scripts:
        name, *typed = line.replace("nas-latency", "nas-analyze study=latency").removeprefix("nas-").split()
        pairs = (word.partition("=") for word in typed)
        words = [f"{key}={smaller.get(key, value)}" for key, _, value in pairs]
        added = ("dataset.batch_size=8", *quick[name])
        assert run_script(name, *words, *added) == 0, capsys.readouterr().err
    facts = json.loads(Path("my_network/summary.json").read_text(encoding="utf-8"))
    assert facts["params"] <= 100_000
    space = NasBench201()
    assert Device("my_laptop/device.csv", space)(space.parse(facts["notation"][0])) <= 2
    capsys.readouterr()
    main(export.split()[1:])
    assert Path("my_network/model.onnx").is_file()
    assert "ms" in capsys.readouterr().out
