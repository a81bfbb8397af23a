"""Draws docs/gallery.md: every kind of picture that the suite draws, each with the commands that draw it.

python -m docs.draw_gallery [NAME…]

Pages are pictures of a Chromium; where there is none, those that are there stay.
"""

import io
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import yaml
from PIL import Image

from tests.report.browser import CHROMIUM, Browser

REPRODUCTIONS = Path(__file__).resolve().parents[1] / "reproductions"
PICTURES = Path(__file__).parent / "images" / "gallery"
GALLERY = Path(__file__).parent / "gallery.yaml"
PAGE = Path(__file__).parent / "gallery.md"
WIDTH, HEIGHT, COLORS = 900, 1250, 64  # pixels
INTRODUCTION = """# Gallery

What the suite draws, each picture below the commands that draw it. All of them take seconds to minutes on
two cores: the sizes are small, and so is what can be concluded from them. `python -m docs.draw_gallery`
draws them again. Run commands with `--config-dir reproductions/conf` in a checkout of the repository.
"""


class Exhibit(NamedTuple):
    """Pictures of a run, as docs/gallery.yaml has them.

    Args:
        title: above them.
        commands: in their order.
        run: the folder of the run that is shown.
        only: the folder in it whose figures are shown, beside those of test images.
        drawn: pictures in docs/images that a script of their own draws, in place of a run's.
        pages: pages of it that are shown, by the name of their picture.
    """

    title: str
    commands: list[str]
    run: str = ""
    only: str = "."
    drawn: Sequence[str] = ()
    pages: Mapping[str, str] = MappingProxyType({})


def read_exhibits() -> dict[str, Exhibit]:
    """All of them by name."""
    content = yaml.safe_load(GALLERY.read_text(encoding="utf-8"))
    return {name: Exhibit(**values) for name, values in content.items()}


def run(exhibit: Exhibit, folder: Path) -> Path:
    """Run the commands in a folder that has only reproductions/; return the folder of the last run."""
    (folder / "reproductions").symlink_to(REPRODUCTIONS)
    scripts = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": scripts, "OMP_NUM_THREADS": "1"}
    for command in exhibit.commands:
        words = shlex.split(command)
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{command}\n{done.stdout}\n{done.stderr}")
    return folder / exhibit.run


def shrink(picture: Image.Image, path: Path) -> None:
    """A picture of a size for a page, in few colors."""
    picture = picture.convert("RGB")
    picture.thumbnail((WIDTH, HEIGHT * 2))
    picture.quantize(COLORS).save(path, optimize=True)


def draw_page(page: Path, path: Path, profile: str, folder: str) -> None:
    """The upper part of a page as a screen has it, with another name for the folder of this machine."""
    page.write_text(page.read_text(encoding="utf-8").replace(folder, "~/my_runs"), encoding="utf-8")
    browser = Browser(profile)
    browser.open(page, width=WIDTH)
    shot = Path(profile, "page.png")
    browser.screenshot(shot)
    browser.close()
    with Image.open(shot) as picture:
        shrink(picture.crop((0, 0, WIDTH, min(picture.height, HEIGHT))), path)


def draw(name: str, exhibit: Exhibit) -> None:
    """All pictures of an exhibit, in place of those that were there."""
    with tempfile.TemporaryDirectory() as folder:
        place = run(exhibit, Path(folder))
        sources = (place / exhibit.only, place / "predictions" / "test")
        figures = [path for source in sources for path in sorted(source.glob("figures/*.png"))]
        target = PICTURES / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for figure in figures:
            with Image.open(io.BytesIO(figure.read_bytes())) as picture:
                shrink(picture, target / figure.name)
        for title, page in exhibit.pages.items() if CHROMIUM else ():
            with tempfile.TemporaryDirectory() as profile:
                draw_page(place / page, PICTURES.parent / f"{title}.png", profile, folder)


def describe(name: str, exhibit: Exhibit) -> str:
    """The exhibit in Markdown."""
    lines = [f"## {exhibit.title}", "", "```bash", *exhibit.commands, "```", ""]
    for title in exhibit.pages:
        lines += [f"![{title.replace('_', ' of ').capitalize()}](images/{title}.png)", ""]
    for picture in exhibit.drawn:
        lines += [f"![{exhibit.title}](images/{picture})", ""]
    for picture in sorted((PICTURES / name).glob("*.png")):
        title = picture.stem.replace("_", " ").capitalize()
        lines += [f"![{title}](images/gallery/{name}/{picture.name})", ""]
    return "\n".join(lines)


def main(names: list[str]) -> None:
    exhibits = read_exhibits()
    for name, exhibit in exhibits.items():
        if exhibit.run and (not names or name in names):
            draw(name, exhibit)
            print(name, flush=True)
    text = "\n".join([INTRODUCTION, *(describe(*item) for item in exhibits.items())])
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
