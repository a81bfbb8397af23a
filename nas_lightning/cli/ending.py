"""What a run says on the screen: where it writes at its start, what it found and what to type next at its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from pytorch_lightning.utilities import rank_zero_only

from nas_lightning.report import write_report


@rank_zero_only
def announce(what: str, cfg: DictConfig) -> None:
    """One line before the work starts."""
    epochs = cfg.trainer.max_epochs
    print(f"{what}, {epochs} epochs, seed {cfg.seed} → {cfg.run}", flush=True)


def finish(run: Path, facts: dict[str, Any], genotypes: Sequence[str], following: str | None) -> None:
    """Write the report and print the end of the run."""
    report = write_report(run)
    lines = ["", *genotypes, ""]
    lines.append(f"{facts['params']:,} parameters, {facts['macs']:,} multiply-adds")
    lines.append(", ".join(f"{name} {value:.4g}" for name, value in headline(facts["metrics"]).items()))
    pictures = sorted((run / "figures").glob("genotype*.png"))
    lines += ["", f"genotype  {run / 'genotype.json'}"]
    lines += [f"picture   {path}" for path in pictures]
    lines += [f"report    {report}"]
    if following is not None:
        lines += ["", "Train it:", f"  {following}"]
    print("\n".join(lines))


def headline(metrics: dict[str, float]) -> dict[str, float]:
    """Losses and accuracies, which is what a reader looks for first."""
    return {name: value for name, value in metrics.items() if name.endswith(("_loss", "_accuracy"))}
