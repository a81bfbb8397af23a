"""What there is to publish of a run, whatever it is published with: read from the run's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nas_lightning.genotype import Genotype
from nas_lightning.runs.facts import RunFacts
from nas_lightning.runs.folder import REPORT, RunFolder, sweep_of
from nas_lightning.runs.history import FIGURES, HISTORY_FILE, read_history
from nas_lightning.runs.metrics_csv import METRICS_FILE, read_metrics
from nas_lightning.runs.record import Record, look_up
from nas_lightning.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

MODEL = "model.safetensors"
MOST_DRAWN = 20  # cells of a search's epochs: a second of drawing each few
_GROUPS = ("strategy", "genotype", "study", "ensemble", "space", "dataset")


@dataclass(frozen=True)
class Publication:
    """A run, as those see it who look at many.

    Args:
        run: its folder, which has the record of its start.

    >>> from tempfile import TemporaryDirectory
    >>> hydra = {"job": {"config_name": "search"}, "runtime": {"choices": {"strategy": "darts"}}}
    >>> with TemporaryDirectory() as folder:
    ...     Record((), {"seed": 3, "name": "of ${seed}"}, hydra).write(Path(folder))
    ...     run = Publication(Path(folder))
    ...     run.name, run.job_type, run.config["name"]
    ('darts seed 3', 'search', 'of 3')
    """

    run: Path

    @cached_property
    def record(self) -> Record:
        """How it was started."""
        return RunFolder(self.run).record

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration with its references resolved, and the option that was chosen in each group."""
        plain = {**self.record.config, "run": str(self.run)}
        try:
            resolved: Any = OmegaConf.to_container(OmegaConf.create(plain), resolve=True)
        except OmegaConfBaseException:  # to what only the run itself knew
            resolved = plain
        return {**resolved, "choices": self.choices} if self.record.config else {}

    @property
    def choices(self) -> dict[str, str]:
        """Our own groups' options, and none of Hydra's."""
        return {
            group: str(option) for group, option in self.record.choices.items() if "/" not in group and option
        }

    @property
    def group(self) -> str | None:
        """The sweep that it is a job of."""
        sweep = sweep_of(self.run)
        return None if sweep is None else sweep.name

    @property
    def job_type(self) -> str | None:
        """Search, training, ensemble or study."""
        return self.record.kind

    @property
    def tags(self) -> list[str]:
        """What was chosen of what tells runs apart."""
        chosen = (self.choices.get(group) for group in _GROUPS)
        return [option for option in chosen if option is not None]

    @property
    def name(self) -> str:
        """Its tags and its seed, or its folder."""
        if not self.tags:
            return self.run.absolute().name
        return f"{' '.join(self.tags)} seed {self.record.config.get('seed', 0)}"

    @property
    def best(self) -> dict[str, str]:
        """Metrics of which the best counts, each with what that is: max or min."""
        score = look_up(self.config, "task", "score")
        scores = {self.config.get("objective"), f"valid_{score or 'accuracy'}"}
        maximised = {str(name): "max" for name in scores if name}
        return {**maximised, "valid_loss": "min", "train_loss": "min"}

    @cached_property
    def facts(self) -> RunFacts:
        """What it has come to."""
        return RunFolder(self.run).facts

    @property
    def numbers(self) -> dict[str, float]:
        """Sizes, time and last metrics."""
        sizes = {"params": self.facts.params, "macs": self.facts.macs, "seconds": self.facts.seconds}
        return {**self.facts.metrics, **{name: value for name, value in sizes.items() if value is not None}}

    @property
    def pictures(self) -> dict[str, Path]:
        """Those that the run has drawn."""
        return {f"{FIGURES}/{path.stem}": path for path in sorted((self.run / FIGURES).glob("*.png"))}

    @property
    def page(self) -> Path | None:
        """The run's page."""
        page = self.run / REPORT
        return page if page.is_file() else None

    @property
    def source(self) -> Path | None:
        """The folder of the search that found what was trained."""
        path = look_up(self.record.config, "genotype", "path")
        if not isinstance(path, str):
            return None
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        return folder if RunFolder(folder).genotype.is_file() else None

    def results(self) -> dict[str, Path]:
        """The files that others go on with, by what they are."""
        files = {"genotype": RunFolder(self.run).genotype, "model": self.run / MODEL}
        return {kind: path for kind, path in files.items() if path.is_file()}

    def details(self) -> dict[str, Any]:
        """What is said of those files."""
        facts = self.facts.as_dict()
        left_out = ("versions", "overrides", "files", "space_settings")
        return {name: value for name, value in facts.items() if name not in left_out}

    def cells(self) -> Iterator[tuple[int, Image]]:
        """The first genotype after those epochs that have changed it; at most `MOST_DRAWN`, evenly chosen."""
        from nas_lightning.plots.cell import draw_genotype  # and with it matplotlib

        changed, last = [], None
        for epoch, genotypes in self._epochs():
            if genotypes and genotypes[0].cells and genotypes[0] != last:
                changed.append((epoch, genotypes[0]))
                last = genotypes[0]
        most = min(MOST_DRAWN, len(changed))
        for place in range(most):
            epoch, genotype = changed[round(place * (len(changed) - 1) / max(most - 1, 1))]
            yield epoch, _paint(draw_genotype(genotype))

    def genotypes(self) -> Table:
        """A row an epoch: its first genotype and what was measured; without epochs, what came out."""
        rows = [(epoch, str(genotypes[0])) for epoch, genotypes in self._epochs() if genotypes]
        metrics = self._metrics_of_epochs() if rows else {}
        names = list(dict.fromkeys(name for values in metrics.values() for name in values))
        if not rows:
            notation: Mapping[str, float] = self.facts.metrics
            found = [[None, text, *notation.values()] for text in self.facts.notation[:1]]
            return Table("genotypes", "", ["epoch", "genotype", *notation], found)
        cells = [[e, text, *(metrics.get(e, {}).get(name) for name in names)] for e, text in rows]
        return Table("genotypes", "", ["epoch", "genotype", *names], cells)

    def _epochs(self) -> Iterator[tuple[int, list[Genotype]]]:
        history = self.run / HISTORY_FILE
        for entry in read_history(history) if history.is_file() else ():
            yield entry["epoch"], [Genotype.from_dict(one) for one in entry["genotypes"]]

    def _metrics_of_epochs(self) -> dict[int, dict[str, float]]:
        """The validation's last values in each epoch."""
        epochs: dict[int, dict[str, float]] = {}
        file = self.run / METRICS_FILE
        for row in read_metrics(file) if file.is_file() else ():
            valid = {name: value for name, value in row.items() if name.startswith("valid_")}
            if valid and "epoch" in row:
                epochs.setdefault(int(row["epoch"]), {}).update(valid)
        return epochs


def _paint(figure: Figure) -> Image:
    """A picture in memory: not all trackers take a figure that pyplot does not know."""
    from PIL import Image

    file = BytesIO()
    figure.savefig(file, format="png", dpi=100, facecolor="white")
    return Image.open(file)
