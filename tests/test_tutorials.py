"""The tutorials have been executed, name what exists, and run; the gallery's commands compose."""

import ast
import json
import re
import shlex
import shutil
import sysconfig
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from PIL import Image

from docs import draw_gallery, notebooks, run_tutorials
from tests.yamls import composed

TUTORIALS = sorted(run_tutorials.TUTORIALS.glob("*.ipynb"))
REPRODUCTIONS = Path(__file__).parents[1] / "reproductions" / "conf"
EXHIBITS = draw_gallery.read_exhibits()
SCRIPTS = {"nas-search": "search", "nas-train": "train", "nas-analyze": "analyze"}
MAGIC = re.compile(r"^( *)[!%].*(?:(?<=\\)\n.*)*", re.MULTILINE)
PLACES = re.compile(r"/(?:tmp|root|home|work|Users)/|site-packages")


def cells(path, kind):
    return [
        cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind
    ]


def python_of(cell):
    """What Python reads of a cell: itself, or the file that it writes."""
    source = "".join(cell["source"])
    first, _, rest = source.partition("\n")
    if first.startswith("%%writefile"):
        return rest if first.endswith(".py") else ""
    return MAGIC.sub(r"\1pass", source)


def typed(path):
    """The commands of a notebook, each in one line."""
    for cell in cells(path, "code"):
        source = "".join(cell["source"]).replace("\\\n", " ")
        yield from re.findall(r"^ *!(nas-[^>\n]+)", source, re.MULTILINE)


def check_composes(command):
    """That the words of a command make a configuration; own folders' and variables are left out."""
    program, *words = shlex.split(command)
    if words[:2] == ["--config-dir", "reproductions/conf"]:
        words = [*words[2:], f"hydra.searchpath=[file://{REPRODUCTIONS}]"]
    if program not in SCRIPTS or "--config-dir" in words or "$" in command:
        return False
    script, sweep = SCRIPTS[program], "-m" in words
    single = [word.split(",")[0] if sweep else word for word in words if word != "-m"]  # one run of a sweep
    composed(script, *(word for word in single if not word.startswith("run=")))
    return True


def test_there_are_six():
    assert len(TUTORIALS) == 6


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_has_been_executed_and_names_what_exists(path):
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert len(outputs) >= 4
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    said = json.dumps(
        [{**output, "data": {**output.get("data", {}), notebooks.PNG: ""}} for output in outputs]
    )
    assert "error:" not in said
    assert not PLACES.search(said), PLACES.search(said)
    assert path.stat().st_size <= run_tutorials.MOST_BYTES
    imports = 0
    for cell in code:
        for node in ast.walk(ast.parse(python_of(cell))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("nas_lightning"):
                module = import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
                imports += len(node.names)
    assert imports or any(typed(path))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_what_a_tutorial_types_composes(path):
    assert sum(map(check_composes, typed(path))) or "own_" in path.stem  # whose parts are of its own folder


@pytest.mark.parametrize("name", EXHIBITS)
def test_what_the_gallery_types_composes_and_its_pictures_are_there(name):
    exhibit = EXHIBITS[name]
    assert sum(map(check_composes, exhibit.commands)) or exhibit.drawn
    page = draw_gallery.PAGE.read_text(encoding="utf-8")
    assert all(f"\n{command}\n" in page for command in exhibit.commands)
    pictures = sorted((draw_gallery.PICTURES / name).glob("*.png"))
    shown = [draw_gallery.PICTURES.parent / f"{page}.png" for page in exhibit.pages]
    assert pictures or shown or exhibit.drawn
    assert all(f"](images/{picture})" in page for picture in exhibit.drawn)
    assert all((draw_gallery.PICTURES.parent / picture).is_file() for picture in exhibit.drawn)
    for picture in [*pictures, *shown]:
        assert picture.stat().st_size < 100_000
        assert f"]({picture.relative_to(draw_gallery.PAGE.parent)})" in page
        with Image.open(picture) as image:
            assert image.width <= draw_gallery.WIDTH


def test_the_gallery_has_no_other_pictures():
    assert {path.name for path in draw_gallery.PICTURES.iterdir()} == {
        name for name, exhibit in EXHIBITS.items() if exhibit.run
    }


def test_notebooks_become_markdown_whatever_is_in_them(tmp_path):
    said = {"output_type": "stream", "name": "stdout", "text": ["```\n", "<b>\n"]}
    picture = {"output_type": "display_data", "data": {notebooks.PNG: "iVBORw0K", "text/plain": ["<Figure>"]}}
    content = [
        {"cell_type": "markdown", "source": ["# A\n", "title"]},
        {"cell_type": "code", "source": ["x = 1"], "outputs": [said, picture]},
    ]
    (tmp_path / "one.ipynb").write_text(json.dumps({"cells": content}))
    text = notebooks.to_markdown(tmp_path / "one.ipynb", tmp_path / "shown")
    assert text.split("\n\n") == [
        "# A\ntitle",
        "```python\nx = 1\n```",
        "````text\n```\n<b>\n````",
        "![What the cell shows](shown/one_1.png)\n",
    ]
    assert (tmp_path / "shown" / "one_1.png").read_bytes() == b"\x89PNG\r\n"


def test_what_a_tutorial_said_is_the_same_on_every_machine():
    bar = "epoch 1/2:  50%|##  | 1/2 [00:00]\r\x1b[Aepoch 1/2: 100%|####| 2/2 [00:01]WARNING: skips\r\ndone\n"
    output = [
        {"output_type": "stream", "name": "stdout", "text": piece}
        for piece in (bar[:20], bar[20:], "/x/y/run\n")
    ]
    cell = {"cell_type": "code", "id": "a", "metadata": {"t": 1}, "source": [], "outputs": output}
    notebook = {"cells": [cell], "metadata": {"kernelspec": {"name": "python3"}, "widgets": {}}}
    ((cleaned,), metadata) = run_tutorials.clean(notebook, "/x/y").values()
    assert "".join(cleaned["outputs"][0]["text"]) == "WARNING: skips\ndone\nrun\n"
    assert len(cleaned["outputs"]) == 1
    assert "widgets" not in metadata


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path, tmp_path):
    pytest.importorskip("nbclient", reason="make tutorials installs what runs notebooks: the extra docs")
    pytest.importorskip("ipykernel", reason="make tutorials installs what runs notebooks: the extra docs")
    if shutil.which("nas-search", path=sysconfig.get_path("scripts")) is None:
        pytest.skip("no nas-search beside this Python: pip install -e .")
    run_tutorials.execute(path.read_text(encoding="utf-8"), str(tmp_path))  # an error of a cell is raised


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_links_of_a_tutorial_hold_where_it_lies(path):
    text = "\n".join("".join(cell["source"]) for cell in cells(path, "markdown"))
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
    assert links
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_site_has_them_all():
    text = (run_tutorials.TUTORIALS.parents[1] / "mkdocs.yml").read_text(encoding="utf-8")
    (listed,) = [group["Tutorials"] for group in yaml.safe_load(text)["nav"] if "Tutorials" in group]
    assert {name for name in listed if "/" in name} == {f"tutorials/{path.stem}.md" for path in TUTORIALS}
