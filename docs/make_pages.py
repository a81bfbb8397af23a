"""Write the pages whose numbers come from result files: each `<page>.md.jinja` becomes `<page>.md`.

    python -m docs.make_pages

A template reads result files and never contains a measured number itself:

    {% set ends = table("reproductions/results/hnas/ends.csv") %}
    {{ ends("HNAS;snip", "cifar10") }}            one number: the row's first cells, and a column
    {{ ends.pm("HNAS;snip", "cifar10") }}         with its standard error or deviation
    {{ ends.markdown(["metric", "cifar10"], ".1f") }}  a table of some columns, all rows
    {{ minutes("reproductions/results/hnas") }}        how long the command took
"""

import csv
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

REPOSITORY = Path(__file__).parents[1]
FOLDERS = (".", "docs", "reproductions/*")


class Results:
    """The rows of a CSV file that a command wrote.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        with path.open(encoding="utf-8", newline="") as file:
            self.rows = list(csv.DictReader(file))
        self.path = path

    def row(self, name: str) -> dict[str, str]:
        """Return the row whose first cells are `name`, separated by semicolons."""
        cells = name.split(";")
        found = [row for row in self.rows if list(row.values())[: len(cells)] == cells]
        if len(found) != 1:
            raise ValueError(f"{self.path} has {len(found)} rows named {name!r}, expected one")
        return found[0]

    def __call__(self, name: str, column: str, form: str = ".2f") -> str:
        """Return a cell as a number, or unchanged with the format `s`."""
        cell = self.row(name)[column]
        return cell if form == "s" else format(float(cell), form)

    def pm(self, name: str, column: str, form: str = ".2f") -> str:
        """Return a number ± its standard error (`<column> s.e.`) or deviation (`± <column>`)."""
        row = self.row(name)
        error = row[f"{column} s.e."] if f"{column} s.e." in row else row[f"± {column}"]
        return f"{float(row[column]):{form}} ± {float(error):{form}}"

    def markdown(self, columns: list[str], form: str = ".2f", names: dict[str, str] | None = None) -> str:
        """Return some columns of all rows as a Markdown table; `names` maps columns to their titles."""
        titles = [(names or {}).get(column, column) for column in columns]
        lines = [titles, ["---"] * len(columns)]
        lines += [[self._shown(row, column, form) for column in columns] for row in self.rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

    def _shown(self, row: dict[str, str], column: str, form: str) -> str:
        if form == "s":
            return row[column].replace("|", r"\|")
        try:
            text = format(float(row[column]), form)
            error = row.get(f"{column} s.e.") or row.get(f"± {column}")
            return f"{text} ± {float(error):{form}}" if error else text
        except ValueError:
            return row[column].replace("|", r"\|")


def table(path: str) -> Results:
    """Read a result file, given by its path in the repository."""
    return Results(REPOSITORY / path)


def text(path: str) -> str:
    """Read a result file of one line."""
    return (REPOSITORY / path).read_text(encoding="utf-8").strip()


def minutes(folder: str) -> str:
    """Return how long the command took that wrote a folder of results."""
    (row,) = table(f"{folder}/seconds.csv").rows
    (seconds,) = row.values()
    return "a minute" if float(seconds) < 75 else f"{float(seconds) / 60:.0f} minutes"


def templates() -> list[Path]:
    """Return all templates of the repository."""
    return sorted(path for folder in FOLDERS for path in REPOSITORY.glob(f"{folder}/*.md.jinja"))


def render(template: Path) -> str:
    """Return the page of a template."""
    environment = Environment(
        loader=FileSystemLoader(REPOSITORY),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown
    )
    environment.globals |= {"table": table, "text": text, "minutes": minutes}
    return environment.get_template(template.relative_to(REPOSITORY).as_posix()).render()


def page(template: Path) -> Path:
    """Return where the page of a template is."""
    return template.with_suffix("")


def main() -> None:
    for template in templates():
        page(template).write_text(render(template), encoding="utf-8")


if __name__ == "__main__":
    main()
