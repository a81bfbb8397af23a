"""Ways of searching against one of them: means over search seeds, paired differences, tests, ranks.

nas-compare SEARCH_SWEEP… [TRAIN_SWEEP…] [--by strategy] [--baseline random] [--out FOLDER]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from nas_lightning.errors import InputError
from nas_lightning.flags import FlagParser, command, place_to_write
from nas_lightning.report.paired.findings import Comparison
from nas_lightning.report.paired.outcomes import Question, read_outcomes
from nas_lightning.report.paired.significance import TESTS
from nas_lightning.runs.findings import Findings
from nas_lightning.text import short_path

_BASELINE = "random"
_LESS = ("_loss", "_error", "_rank", "_nll", "_mae", "_mse")


def compare_folders(
    folders: Sequence[str | Path],
    question: Question,
    *,
    baseline: str | None = None,
    less: bool = False,
    test: str = "wilcoxon",
) -> tuple[Comparison, list[str]]:
    """The comparison of the runs in there, and what was left out with the reason.

    Args:
        folders: of sweeps and runs, of searches and of trainings.
        question: what is compared.
        baseline: the arm that the others are compared to; None: random, where that is among them.
        less: whether less of the metric is better, whatever its name.
        test: wilcoxon, permutation or t.
    """
    outcomes, metric, left_out = read_outcomes(folders, question)
    arms = dict.fromkeys(outcome.arm for outcome in outcomes)
    if baseline is None and _BASELINE not in arms and len(arms) > 1:
        raise InputError(f"expected --baseline, one of {', '.join(arms)}", got="none")
    less = less or metric.endswith(_LESS)
    by = " ".join(question.by)
    return Comparison(outcomes, metric, baseline or _BASELINE, less, test, by), left_out


def draw(comparison: Comparison) -> Findings:
    """The tables with their figures."""
    from nas_lightning.plots.arms import draw_critical_difference, draw_seeds  # --help need not wait for it

    seeds = {
        data: {arm: [*of_seeds.values()] for arm, of_seeds in arms.items()}
        for data, arms in comparison.values.items()
    }
    figures = {"seeds": draw_seeds(seeds, comparison.metric)}
    if (ranked := comparison.ranks()) is not None:
        figures["critical_difference"] = draw_critical_difference(
            ranked.ranks, ranked.critical_difference, ranked.cliques()
        )
    return Findings(comparison.tables(), figures)


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """The command; prints the tables, the paths of all files, and on stderr what was left out."""
    lines = (__doc__ or "").splitlines()
    parser = FlagParser(prog="nas-compare", description=lines[0])
    add = parser.add_argument
    add("folders", nargs="+", help="sweeps and runs: of searches, and of trainings of what they found")
    add("--by", default="strategy", help="what is compared: settings or groups, with commas between them")
    add("--over", help="what tells data sets apart: a setting or group, such as space")
    add("--metric", help="the default is the task's score of test images, or a table's accuracy")
    add("--less-is-better", action="store_true", help="of a metric whose name does not end in loss, error, …")
    add("--baseline", help=f"what the others are compared to; {_BASELINE}, where that is among them")
    add("--test", choices=tuple(TESTS), default="wilcoxon")
    add("--out", type=place_to_write, help="the default is `comparison` in the last folder")
    options = parser.parse_args(arguments)
    question = Question(tuple(options.by.split(",")), options.over, options.metric)
    compared, left_out = compare_folders(
        options.folders, question, baseline=options.baseline, less=options.less_is_better, test=options.test
    )
    written = draw(compared).write(options.out or Path(options.folders[-1]) / "comparison")
    print("\n\n".join(table.markdown() for table in compared.tables()), end="\n\n")
    for path in written:
        print(short_path(path))
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
