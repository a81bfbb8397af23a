"""Scores of many architectures, kept in a file."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import nn

from nas_lightning.backends import Backend, spread
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics.base import Metric, score
from nas_lightning.metrics.engine import Batch
from nas_lightning.metrics.recording import Scheme, check_batch, initialize
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.utils.devices import CPU, arithmetic
from nas_lightning.utils.files import check_file, json_text, parse_json, read_text, write_whole
from nas_lightning.utils.machine import Processes
from nas_lightning.utils.processes import from_first, rank_and_world, share_out
from nas_lightning.utils.progress import follow, never
from nas_lightning.utils.randomness import seed_of_name
from nas_lightning.validation import PositiveInt, checked, entries

# The file of a scored pool: a line per architecture; the settings are in a second file.

MetricValues = dict[str, float]


class PoolFile:
    """A CSV file `arch, <metrics>`, appended to line by line, and `<path>.json` with its settings.

    An incomplete last line is dropped when the file is read.

    Args:
        path: the CSV file.
        metrics: the columns after `arch`.
        settings: what the scores depend on; must agree with an existing file.
    """

    def __init__(self, path: Path, metrics: Sequence[str], settings: Mapping[str, Any]) -> None:
        if not path.name:
            raise InputError("`pool` must be the path of a file", got=str(path))
        self.path, self.header, self.settings = path, ["arch", *metrics], dict(settings)
        self.facts = path.with_name(f"{path.name}.json")

    def check(self) -> None:
        """Raise unless the file can be continued; nothing is written."""
        self._parse(self._whole_lines())

    def read(self) -> dict[str, MetricValues]:
        """Return the scores in an existing file, or create it."""
        whole = self._whole_lines()
        found = self._parse(whole)
        if whole:
            os.truncate(self.path, len(whole))
        else:
            write_whole(self.facts, json_text(self.settings, 2) + "\n")
            write_whole(self.path, _line(self.header))
        return found

    def _parse(self, whole: bytes) -> dict[str, MetricValues]:
        if not whole:
            self._check_free()
            return {}
        self._check_settings()
        try:
            header, *rows = csv.reader(StringIO(whole.decode("utf-8"), newline=""))
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"Cannot read the CSV file of the pool: {error}", where=self.path) from None
        if header != self.header:
            raise InputError(f"The columns must be {', '.join(self.header)}", got=header, where=self.path)
        return dict(self._scores(number, row) for number, row in enumerate(rows, 2))

    def append(self, name: str, scores: MetricValues) -> None:
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(_line([name, *(scores[metric] for metric in self.header[1:])]))

    def _whole_lines(self) -> bytes:
        check_file(self.path)
        content = self.path.read_bytes() if self.path.is_file() else b""
        return content[: content.rfind(b"\n") + 1]

    def _check_free(self) -> None:
        """Raise where either file's place is taken by what is not ours."""
        if self.path.exists() and not self._is_begun():
            raise InputError("The file exists and is not the CSV file of a pool", where=self.path)
        if self.facts.exists() and not self._are_settings():
            raise InputError("The file exists and does not have the settings of the pool", where=self.facts)

    def _is_begun(self) -> bool:
        """Whether the file is empty, or has no more than a part of the header."""
        return self.path.is_file() and _line(self.header).encode().startswith(self.path.read_bytes())

    def _are_settings(self) -> bool:
        """Whether there are some of a pool, whose lines may never have come."""
        try:
            found = parse_json(read_text(self.facts))
        except (OSError, ValueError):
            return False
        return isinstance(found, dict) and found.keys() >= self.settings.keys() - {"device"}

    def _check_settings(self) -> None:
        try:
            text = read_text(self.facts)
        except (OSError, UnicodeDecodeError):
            raise InputError("The pool has no file of settings", where=self.facts) from None
        before = parse_json(text, "Cannot read the settings of the pool", where=self.facts)
        for key, value in self.settings.items():
            # files of version 0.2 do not have the device
            default = "cpu" if key == "device" else None
            old = before.get(key, default) if isinstance(before, dict) else before
            if old != value:
                raise InputError(
                    f"`{key}` must be {old}, as in the other lines of the file", got=value, where=self.path
                )

    def _scores(self, number: int, row: Sequence[str]) -> tuple[str, MetricValues]:
        try:
            return row[0], {name: float(text) for name, text in zip(self.header[1:], row[1:], strict=True)}
        except (ValueError, IndexError):
            expected = f"Each line must have an architecture and {len(self.header) - 1} numbers"
            raise InputError(expected, got=",".join(row), where=f"{self.path}, line {number}") from None


def _line(values: Sequence[Any]) -> str:
    text = StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


# Thousands of architectures scored by several processes, to a file that a second call goes on from.


_CHUNK = 8  # architectures that a process scores between two exchanges


@checked
def score_pool(
    space: SearchSpace,
    network: Callable[[Genotype], nn.Module],
    genotypes: Iterable[Genotype],
    batch: Batch,
    metrics: Annotated[Mapping[str, Metric], entries(1)],
    *,
    path: str | Path | None = None,
    workers: Processes = 1,
    threads: PositiveInt = 1,
    scheme: Scheme = "lecun",
    seed: int = 0,
    backend: Backend = "processes",
    device: torch.device = CPU,
    progress: bool = True,
    out_of_time: Callable[[], bool] = never,
) -> list[MetricValues]:
    """The metrics of each genotype, in the order of the genotypes; out of time, those of the first few.

    In a distributed run all processes must call it; each scores its share, and all return all scores.

    The weights of an architecture are drawn from `seed` and its notation, so its scores are the same bits in
    whatever pool, order or number of processes it is scored; another number of threads changes the last bits.

    Args:
        space: whose notation names the architectures.
        network: genotype → derived network; what it closes over goes to the processes.
        genotypes: the pool; an architecture that comes twice is scored once.
        batch: inputs and labels that all are scored on.
        metrics: by the names that their values get.
        path: a CSV file that each result is appended to as it comes. Where it exists, its architectures are
            not scored again; `<path>.json` beside it has the settings, and others are refused.
        workers: processes; 1 stays in this one. A cluster of Ray's or Dask's has its own.
        threads: of each process.
        scheme: how the weights are drawn, see `initialize`.
        seed: of the weights.
        backend: `processes` of this machine, or `ray` or `dask`, where that package is installed.
        device: where networks are scored; they are built and initialized on the CPU.
        progress: say rate and time left.
        out_of_time: asked after each, and no other is scored where it says so.
    """
    work = Work(network, batch, dict(metrics), scheme, seed, threads, device)
    genotypes = list(genotypes)
    pool = {space.notation(genotype): genotype for genotype in genotypes}
    file = None if path is None else PoolFile(Path(path), list(metrics), _settings(space, work))
    scores_of = {} if file is None else from_first(file.read)
    todo = {name: genotype for name, genotype in pool.items() if name not in scores_of}
    run = partial(spread, work, workers=workers, backend=backend, device=device)
    done = share_out(run, list(todo.items()), count=_CHUNK * workers)
    started, is_first = len(pool) - len(todo), rank_and_world()[0] == 0
    shown = progress and is_first
    for name, scores in follow(done, "architectures", total=len(pool), done=started, shown=shown):
        scores_of[name] = scores
        if file is not None and is_first:
            file.append(name, scores)
        if out_of_time():
            break
    named = (space.notation(genotype) for genotype in genotypes)
    return [scores_of[name] for name in takewhile(scores_of.__contains__, named)]


def check_pool(
    path: Path,
    space: SearchSpace,
    network: Callable[[Genotype], nn.Module],
    batch: Batch,
    metrics: Mapping[str, Metric],
    seed: int,
    device: torch.device = CPU,
) -> None:
    """Raise unless `score_pool` can continue the file with these settings; nothing is scored."""
    work = Work(network, batch, dict(metrics), "lecun", seed, 1, device)
    PoolFile(path, list(metrics), _settings(space, work)).check()


@dataclass(frozen=True)
class Work:
    """Scores an architecture, in any process.

    Args:
        network: maps a genotype to the derived network.
        batch: inputs and labels.
        metrics: metrics by name.
        scheme: initialization of the weights.
        seed: seed of the weights.
        threads: threads of each process.
        device: where networks are scored.
    """

    network: Callable[[Genotype], nn.Module]
    batch: Batch
    metrics: Mapping[str, Metric]
    scheme: Scheme
    seed: int
    threads: int
    device: torch.device

    def __post_init__(self) -> None:
        check_batch(*self.batch)

    def __call__(self, name: str, genotype: Genotype) -> tuple[str, MetricValues]:
        threads = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            with torch.random.fork_rng(devices=[]):
                return name, self.score(name, genotype)
        finally:
            torch.set_num_threads(threads)

    def score(self, name: str, genotype: Genotype) -> MetricValues:
        """Return the metrics of one architecture, on the meta device if they allow it."""
        if all(metric.shapes_only for metric in self.metrics.values()):
            try:
                with torch.device("meta"):
                    network = self.network(genotype).to("meta")
                    x, labels = (part.to("meta") for part in self.batch)
                    return score(network, (x, labels), self.metrics)
            except Exception:  # a network that needs values
                pass
        x, labels = (part.to(self.device) for part in self.batch)
        return score(self.build(name, genotype).to(self.device), (x, labels), self.metrics)

    def build(self, name: str, genotype: Genotype) -> nn.Module:
        """Build the network with weights that its name and the seed determine."""
        seed = seed_of_name(self.seed, name)
        torch.default_generator.manual_seed(seed)  # for layers that `initialize` does not change
        network = self.network(genotype)
        initialize(network, self.scheme, torch.Generator().manual_seed(seed))
        return network


def _settings(space: SearchSpace, work: Work) -> dict[str, Any]:
    """Return the settings that scores depend on, with digests of data and network."""
    example = space.unlimited.sample(torch.Generator().manual_seed(0))  # whatever limits a search has
    with torch.random.fork_rng(devices=[]):
        network = work.network(example)
    images, labels = (part.cpu().contiguous().numpy().tobytes() for part in work.batch)
    return {
        "space": space.name,
        "network": _digest(str(network).encode()),
        "batch": _digest(images + labels),
        "metrics": {name: repr(metric) for name, metric in work.metrics.items()},
        "scheme": work.scheme,
        "seed": work.seed,
        "threads": work.threads,
        "device": arithmetic(work.device),
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
