"""An ensemble of NESBS, end to end: search, training, evaluation, and defense.

    python -m reproductions.measurements.ensemble [--seed 0] [--data ../shared/data --images 5000]

Runs `search.py strategy=nesbs`, `train.py ensemble=all`, the baseline `ensemble=deep` on its first
architecture, and `analyze.py study=defense` on the first, as a user would type them: on the embedded digits,
or on the first images of CIFAR-10 with --data. Prints the errors, and last the error of the ensemble and of
its best member (target: below), and for each attack the defense accuracy and the attack accuracy (target:
above). On the digits, few of the 359 test images are wrong, so that only the attacks are informative. Members
are trained without dropped paths and cutout, because networks this small do not overfit. --run saves the runs
in a folder, where a second call continues.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from nas_lightning.runs.folder import RunFolder

ROOT = Path(__file__).parents[1]


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as temporary:
        measure((options.run or Path(temporary)).absolute(), options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=None, help="folder with cifar10/; default: the digits")
    parser.add_argument(
        "--images", type=int, default=5000, help="images of CIFAR-10, of training and of test"
    )
    parser.add_argument("--search-epochs", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=25, help="epochs of every member")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--cells", type=int, default=4)
    parser.add_argument("--epsilon", type=float, default=0.01, help="ε of FGSM and PGD")
    parser.add_argument("--attacked", type=int, default=200, help="number of attacked test images")
    parser.add_argument("--run", type=Path, default=None)
    return parser.parse_args()


def measure(folder: Path, options: argparse.Namespace) -> None:
    data = [f"seed={options.seed}"]
    if options.data is not None:
        root = (options.data / "cifar10").absolute()
        data += ["dataset=cifar10", f"dataset.root={root}", f"dataset.subset={options.images}"]
    search, trained, deep = (folder / name for name in ("search", "ensemble", "deep"))
    size = (f"network.channels={options.channels}", f"network.cells={options.cells}")
    supernet = (f"supernet.channels={options.channels}", f"supernet.cells={options.cells}")
    call("search", search, *data, "strategy=nesbs", *supernet, f"trainer.max_epochs={options.search_epochs}")
    plain = ("retrain.drop_path=0", "dataset.cutout=0", f"trainer.max_epochs={options.epochs}")
    found = ("genotype=file", f"genotype.path={search}", *size, *plain)
    call("train", trained, *data, *found, "ensemble=all")
    call("train", deep, *data, *found, "ensemble=deep")
    for name, run in (("NESBS", trained), ("deep ensemble of its first architecture", deep)):
        print(f"\n{name}\n{(run / 'tables' / 'ensemble.md').read_text(encoding='utf-8')}", flush=True)
        print((run / "tables" / "members.md").read_text(encoding="utf-8"), flush=True)
    defense = folder / f"defense_{options.epsilon:g}"
    strength = [f"study.settings.{attack}.epsilon={options.epsilon}" for attack in ("fgsm", "pgd")]
    attacks = ("study=defense", f"study.ensemble={trained}", f"study.images={options.attacked}", *strength)
    call("analyze", defense, *data, *attacks)
    print((defense / "tables" / "defense.md").read_text(encoding="utf-8"))
    report(numbers(trained), numbers(defense))


def report(tested: dict[str, float], attacked: dict[str, float]) -> None:
    error, best = tested["test_error"], tested["best_member_error"]
    print(f"ensemble error minus its best member's: {error - best:+.4f} (target < 0)")
    for attack in ("fgsm", "pgd", "cw"):
        alone, together = (attacked[f"{attack}/{side}_accuracy"] for side in ("attack", "defense"))
        print(f"{attack}: defense {together:.3f}, attack {alone:.3f}: {together - alone:+.3f} (target > 0)")


def numbers(run: Path) -> dict[str, float]:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))["metrics"]


def call(script: str, run: Path, *words: str) -> None:
    """Run a script in a new folder; resume an unfinished run, and skip a finished one."""
    folder = RunFolder(run)
    if folder.is_finished:
        return
    settings = [f"resume={run}"] if folder.has_record else [*words, f"run={run}"]
    subprocess.run(
        [sys.executable, f"{script}.py", *settings], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )


if __name__ == "__main__":
    main()
