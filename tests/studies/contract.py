"""The contract of every study: small, it runs, writes, prints, and resumes to the same files."""

import csv
import re
from pathlib import Path

from hydra.utils import get_class

from nas_lightning.options import comment_words, description, option_file
from nas_lightning.studies.base import PARTS, Study
from tests.yamls import composed


class Options:
    """The studies of the package and of further configuration folders."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders
        self.typed = [word for folder in folders for word in ("--config-dir", str(folder))]

    def small(self, name: str) -> list[str]:
        """The arguments with which the study takes seconds, from the comment `# Small: …` in its yaml."""
        words = comment_words(option_file("study", name, self.folders), "Small")
        assert words, f"expected a comment `# Small: …` in {name}.yaml"
        return [*self.typed, f"study={name}", *words]

    def check_class(self, name: str) -> None:
        searchpath = f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in self.folders)}]"
        target = get_class(composed("analyze", searchpath, f"study={name}").study._target_)
        assert issubclass(target, Study)
        assert set(target.wants()) <= set(PARTS)
        assert target.run.__doc__

    def check_help(self, names: list[str], command) -> None:
        out = command("analyze", *self.typed, "--help").out
        for name in names:
            line = description(option_file("study", name, self.folders))
            assert re.search(rf"^  {name} +{re.escape(line)}$", out, re.M), name

    def check_run(self, name: str, command, folder: Path) -> None:
        """Run it small, check what it writes, and resume it."""
        code, out, err = command("analyze", *self.small(name), "run=here")
        assert (code, err) == (0, ""), (code, err)
        assert out.startswith(f"Study {name}, seed ")
        run = folder / "here"
        tables = sorted((run / "tables").glob("*.md"))
        assert any(path.read_text() in out for path in tables)
        for path in tables:
            assert str(path.relative_to(folder)) in out
            header, *rows = csv.reader(path.with_suffix(".csv").read_text().splitlines())
            assert rows
            assert {len(row) for row in rows} == {len(header)}
            assert len(set(header)) == len(header)
            assert r"\toprule" in path.with_suffix(".tex").read_text()
        for svg in (run / "figures").glob("*.svg"):
            assert svg.with_suffix(".png").is_file()
            assert str(svg.with_suffix(".png").relative_to(folder)) in out
        assert not re.search(r"\bnan\b", "".join(path.read_text() for path in tables), re.I)

        before = contents(run)
        code, out, err = command("analyze", *self.typed, "resume=here")
        assert (code, err) == (0, ""), (code, err)
        assert contents(run) == before


def contents(run: Path) -> dict[str, bytes]:
    found = {path for part in ("tables", "figures") for path in (run / part).glob("*")}
    return {str(path.relative_to(run)): path.read_bytes() for path in found}
