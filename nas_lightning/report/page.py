"""A run's page: `report.html` in its folder, one file that needs no other, no network and no scripts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from nas_lightning.errors import InputError
from nas_lightning.genotype import FILE_NAME, read_genotypes
from nas_lightning.plots.curves import by_epoch
from nas_lightning.plots.files import save_curves, save_genotypes, save_weights
from nas_lightning.runs.history import FIGURES, HISTORY_FILE, read_history
from nas_lightning.runs.metrics_csv import METRICS_FILE, read_metrics
from nas_lightning.tables import shown
from nas_lightning.text import duration

if TYPE_CHECKING:
    from nas_lightning.runs.findings import Findings

REPORT_FILE = "report.html"
_ACCURACIES = ("test_accuracy", "val_accuracy", "valid_accuracy")


def write_report(
    run: Path,
    seconds: float | None = None,
    following: Mapping[str, str] | None = None,
    findings: Findings | None = None,
) -> Path:
    """Describe a run by what its folder holds, and draw its figures; what is missing is named.

    Args:
        run: the folder.
        seconds: what it took, where that is known: no file has them before the run is over.
        following: what to type next, by what it is for.
        findings: tables and figures, already written to the folder, instead of what is measured in epochs.

    """
    if not run.is_dir():
        raise InputError("expected a run's folder", got=str(run))
    facts = _facts(run)
    sections: dict[str, Callable[[], str]] = {
        "Architecture": lambda: _architecture(run, facts),
        "What to type next": lambda: _commands(run, facts, following or {}),
        "Results": lambda: _results(run, facts),
    }
    if findings is not None:
        sections["Tables and figures"] = lambda: _findings(run, findings)
    else:
        sections["Curves"] = lambda: _curves(run)
    if _is_search(run, facts):
        sections["Weights over time"] = lambda: _weights(run)
    sections["Configuration"] = lambda: _configuration(run)
    if facts and not following:
        del sections["What to type next"]
    body = [_head(run, facts, seconds), *(_section(title, content) for title, content in sections.items())]
    page = _PAGE.format(title=escape(_title(run, facts)), style=_STYLE, body="\n".join(body))
    path = run / REPORT_FILE
    path.write_text(page, encoding="utf-8")
    return path


def _facts(run: Path) -> Mapping[str, Any]:
    """What stands beside the genotypes; nothing where the file is missing or broken (its section says so)."""
    try:
        facts = json.loads((run / FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _section(title: str, content: Callable[[], str]) -> str:
    try:
        inner = content()
    except InputError as error:
        inner = f'<p class="missing">Left out: {escape(str(error))}</p>'
    return f"<section>\n<h2>{escape(title)}</h2>\n{inner}\n</section>"


def _title(run: Path, facts: Mapping[str, Any]) -> str:
    known = {**_choices(run), **facts}
    where = " on ".join(str(known[key]) for key in ("space", "dataset") if key in known)
    what = str(known.get("strategy", "Training"))
    return (f"{what}: {where}" if where else what) + ("" if facts else " (not finished)")


def _choices(run: Path) -> dict[str, str]:
    """What was chosen on the command line, for a run that has no results yet."""
    path = run / ".hydra" / "hydra.yaml"
    if not path.is_file():
        return {}
    chosen = yaml.safe_load(path.read_text(encoding="utf-8"))["hydra"]["runtime"]["choices"]
    return {key: chosen[key] for key in ("strategy", "space", "dataset") if key in chosen}


def _head(run: Path, facts: Mapping[str, Any], seconds: float | None) -> str:
    known = {**_choices(run), **facts}
    tiles: dict[str, Any] = {
        key: known[key] for key in ("strategy", "space", "dataset", "seed") if key in known
    }
    metrics = facts.get("metrics", {})
    for name in [name for name in _ACCURACIES if name in metrics][:1]:
        tiles[name.replace("_", " ")] = f"{metrics[name]:.2%}"
    for name, key in (("parameters", "params"), ("multiply-adds", "macs")):
        if key in facts:
            tiles[name] = f"{facts[key]:,}"
    if seconds is not None:
        tiles["took"] = duration(seconds)
    if facts:
        finished = datetime.fromtimestamp((run / FILE_NAME).stat().st_mtime)
        tiles["finished"] = f"{finished:%Y-%m-%d %H:%M}"
    tiles.update(facts.get("versions", {}))
    cells = "\n".join(f"<div><dt>{escape(k)}</dt><dd>{escape(str(v))}</dd></div>" for k, v in tiles.items())
    return f"<header>\n<h1>{escape(_title(run, facts))}</h1>\n<dl>\n{cells}\n</dl>\n</header>"


def _architecture(run: Path, facts: Mapping[str, Any]) -> str:
    if not (run / FILE_NAME).is_file():
        raise InputError(f"expected {FILE_NAME}, which a run writes at its end")
    genotypes = read_genotypes(run)
    notations = facts.get("notation", [str(genotype) for genotype in genotypes])
    parts = []
    for number, (svg, notation) in enumerate(
        zip(save_genotypes(genotypes, run / FIGURES), notations, strict=False), 1
    ):
        if len(genotypes) > 1:
            parts.append(f"<h3>Member {number}</h3>")
        parts += [_inline(svg, f"architecture {number}"), _copyable(str(notation))]
    return "\n".join(parts)


def _is_search(run: Path, facts: Mapping[str, Any]) -> bool:
    return "strategy" in facts or (run / HISTORY_FILE).is_file()


def _commands(run: Path, facts: Mapping[str, Any], following: Mapping[str, str]) -> str:
    if not facts:
        script = "search.py" if _is_search(run, facts) else "train.py"
        following = {"Go on where it stopped": f"python {script} {shlex.quote(f'resume={run}')}"}
    return "\n".join(f"<p>{escape(what)}</p>\n{_copyable(typed)}" for what, typed in following.items())


def _findings(run: Path, findings: Findings) -> str:
    parts = []
    for table in findings.tables:
        rows = [table.columns, *([shown(cell) for cell in row] for row in table.rows)]
        cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
        body = "\n".join(f"<tr>{row}</tr>" for row in cells)
        parts.append(f'<h3>{escape(table.title)}</h3>\n<table class="wide">\n{body}\n</table>')
        if table.note:
            parts.append(f"<p>{escape(table.note)}</p>")
    parts += [_inline(run / FIGURES / f"{name}.svg", name.replace("_", " ")) for name in findings.figures]
    return "\n".join(parts)


def _results(run: Path, facts: Mapping[str, Any]) -> str:
    last = facts.get("metrics") or {n: [*v.values()][-1] for n, v in by_epoch(_metrics(run)).items()}
    known = {name: last[name] for name in sorted(last) if not name.startswith("weights/")}
    first = {name: value for name, value in known.items() if name.endswith(("_loss", "_accuracy", "_error"))}
    rest = {name: value for name, value in known.items() if name not in first}
    more = f"<details>\n<summary>More</summary>\n{_table(rest)}\n</details>" if rest else ""
    return _table(first) + more


def _table(metrics: Mapping[str, float]) -> str:
    rows = (f"<tr><th>{escape(name)}</th><td>{value:.4g}</td></tr>" for name, value in metrics.items())
    return "<table>\n" + "\n".join(rows) + "\n</table>"


def _metrics(run: Path) -> Iterable[Mapping[str, float]]:
    if not (run / METRICS_FILE).is_file():
        raise InputError(f"expected {METRICS_FILE}, which logger=csv writes")
    return read_metrics(run / METRICS_FILE)


def _curves(run: Path) -> str:
    return _inline(save_curves(_metrics(run), run / FIGURES), "losses and accuracies over the epochs")


def _weights(run: Path) -> str:
    source = run / HISTORY_FILE
    if not source.is_file():
        raise InputError(f"expected {HISTORY_FILE}, which callbacks.history writes")
    history = read_history(source)
    if not history:
        raise InputError(f"expected at least one epoch in {HISTORY_FILE}")
    groups = history[-1].get("groups")
    if not groups:
        raise InputError("expected scores of edges, which this strategy does not have")
    drawn = [
        run / FIGURES / f"weights_{group}.svg" for group in groups
    ]  # by the callback, at the search's end
    if not all(svg.is_file() and svg.stat().st_mtime_ns >= source.stat().st_mtime_ns for svg in drawn):
        drawn = save_weights(history, run / FIGURES)
    return "\n".join(_inline(svg, svg.stem.replace("_", " ")) for svg in drawn)


def _configuration(run: Path) -> str:
    path = run / ".hydra" / "config.yaml"
    if not path.is_file():
        raise InputError("expected .hydra/config.yaml, which the scripts write")
    text = escape(path.read_text(encoding="utf-8"))
    return f"<details>\n<summary>All settings of this run</summary>\n<pre>{text}</pre>\n</details>"


def _copyable(text: str) -> str:
    return f'<pre class="copy">{escape(text)}</pre>'


def _inline(svg: Path, label: str) -> str:
    """The drawing as part of the page, with identifiers of its own."""
    text = svg.read_text(encoding="utf-8")
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{svg.stem}-", text)
    return f'<figure role="img" aria-label="{escape(label)}">\n{text}</figure>'


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

_STYLE = """
:root { --ink: #22262b; --soft: #5f6771; --page: #f6f7f9; --card: #fff; --line: #dfe3e8; --code: #f1f3f6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #9aa3ad; --page: #15181c; --card: #1e2227; --line: #333a42;
    --code: #262b31; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--ink);  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 1rem; }
h2 { font-size: 1.1rem; margin: 0 0 .8rem; }
h3 { font-size: .95rem; margin: 1.2rem 0 .4rem; color: var(--soft); }
dl { display: flex; flex-wrap: wrap; gap: .6rem; margin: 0; }
dl div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .45rem .8rem; }
dt { font-size: .75rem; color: var(--soft); }
dd { margin: 0; font-weight: 600; font-variant-numeric: tabular-nums; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1.1rem 1.25rem; margin-top: 1.1rem; }
section p { margin: .6rem 0 .25rem; color: var(--soft); }
figure { margin: 0 0 .8rem; padding: .6rem; background: #fff; border-radius: 8px; overflow-x: auto;
  text-align: center; }
figure svg { display: block; margin: auto; max-width: 100%; height: auto; }
pre { background: var(--code); border-radius: 8px; padding: .7rem .9rem; margin: .25rem 0 .6rem;
  overflow-x: auto; font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre.copy { white-space: pre-wrap; overflow-wrap: anywhere; user-select: all; }
table { border-collapse: collapse; }
th { text-align: left; font-weight: 400; padding: .2rem 2rem .2rem 0; }
td { text-align: right; font-weight: 600; font-variant-numeric: tabular-nums; }
.wide { margin-bottom: 1rem; }
.wide td { padding: .2rem 0 .2rem 1.5rem; }
.wide td:first-child { text-align: left; padding-left: 0; }
.wide td:first-child, .wide tr:first-child td { font-weight: 400; color: var(--soft); }
tr + tr { border-top: 1px solid var(--line); }
table + details { margin-top: .8rem; }
summary { cursor: pointer; color: var(--soft); }
.missing { font-style: italic; }
"""
