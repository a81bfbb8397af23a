"""All metrics of one architecture: from shared passes, and one at a time.

    python -m benchmarks.metrics_shared [--rounds 5] [--quick]

The metrics of `conf/metric` on a derived network of NAS-Bench-201 and a batch of 64. Both ways are of this
package, so that the figure is the gain of sharing. `sample_grasp`, which only checks `grasp`, is left out.
`vkdnw` takes longer than all others: a backward pass for each class that no other metric uses. Prints the
speed-up with it, and then without it (target ≥ 2.2).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import OmegaConf

from benchmarks.ntk import subject
from benchmarks.timing import medians, report
from nas_lightning.metrics import Metric, score

ALONE, JUDGE = "vkdnw", "sample_grasp"
CONFIGS = Path(__file__).parents[1] / "conf" / "metric"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="1 cell per stage instead of 5")
    options = parser.parse_args()
    every: dict[str, Metric] = {
        path.stem: instantiate(OmegaConf.load(path))
        for path in sorted(CONFIGS.glob("*.yaml"))
        if path.stem != JUDGE
    }
    metrics = {name: metric for name, metric in every.items() if not metric.layered_only}
    network, x, labels = subject(1 if options.quick else 5)
    batch = (x, labels)
    works = {name: lambda m=metric: m(network, batch) for name, metric in metrics.items()}
    others = {name: metric for name, metric in metrics.items() if name != ALONE}
    works["together"] = lambda: score(network, batch, metrics)
    works[f"together, without {ALONE}"] = lambda: score(network, batch, others)
    seconds = medians(works, options.rounds)
    seconds["one at a time"] = sum(seconds[name] for name in metrics)
    seconds[f"one at a time, without {ALONE}"] = sum(seconds[name] for name in others)
    report(seconds)
    print(f"one at a time / together: {seconds['one at a time'] / seconds['together']:.2f}")
    ratio = seconds[f"one at a time, without {ALONE}"] / seconds[f"together, without {ALONE}"]
    print(f"one at a time / together, without {ALONE}: {ratio:.2f} (target ≥ 2.2)")


if __name__ == "__main__":
    main()
