"""Predict a folder of images with a trained network or ensemble; write a CSV file and an HTML page.

nas-predict RUN IMAGES [--out FOLDER] [--masks FOLDER] [--batch 64] [--device cpu] [--runtime torch|onnx]
            [--optimize]

If subfolders are named after classes, they are the labels, and the page has the confusion matrix, precision
and recall per class, a calibration plot, and the most confident errors. A segmentation network writes a mask
per image; --masks is a folder of ground-truth masks with the names of the images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas_lightning.errors import InputError
from nas_lightning.flags import FlagParser, add_own_parts, command, own_parts
from nas_lightning.utils.files import check_contents
from nas_lightning.utils.text import format_number, format_share, short_path

if TYPE_CHECKING:
    from nas_lightning.jobs.predict import Outcome

MOST_BATCH = 65_536


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command: print the accuracy if labels are known, and the paths of the files."""
    parser = FlagParser(prog="nas-predict", description=__doc__.split("\n")[0])
    parser.add_argument("run", help="the folder of a training or of an ensemble, or a model.safetensors")
    parser.add_argument("images", type=Path, help="a folder or a .tar file of images, or one image")
    parser.add_argument("--out", type=Path, help="output folder (default: predictions/<images> in the run)")
    parser.add_argument("--masks", type=Path, help="ground-truth masks, for a segmentation network")
    parser.add_argument("--batch", type=int, default=64, help="batch size (default: 64)")
    parser.add_argument("--device", default="cpu", help="device, such as cuda (default: cpu)")
    parser.add_argument("--runtime", choices=("torch", "onnx"), default="torch", help="inference engine")
    parser.add_argument("--optimize", action="store_true", help="fold norms and freeze weights, on CPU only")
    add_own_parts(parser)
    options = parser.parse_args(arguments)
    if not 1 <= options.batch <= MOST_BATCH:
        raise InputError(f"`--batch` must be from 1 to {MOST_BATCH:,}", got=options.batch, where="--batch")
    run = Path(options.run)
    from nas_lightning.jobs.predict import predict  # imports torch, which --help does not need
    from nas_lightning.models.prediction import PREDICTIONS as FOLDER

    if options.out is None:
        folder = run if run.is_dir() else run.parent
        check_contents(folder)
        options.out = folder / FOLDER / options.images.resolve().name
    own: dict[str, Any] = own_parts(options)
    how = {name: getattr(options, name) for name in ("masks", "batch", "device", "runtime", "optimize")}
    outcome = predict(run, options.images, options.out, **how, **own)
    for line in _summary(outcome, "ONNX Runtime" if options.runtime == "onnx" else "PyTorch"):
        print(line)


def _summary(outcome: Outcome, runtime: str) -> Iterator[str]:
    import torch

    from nas_lightning.models import Predictions
    from nas_lightning.models.latency import state_conditions

    predictions, numbers = outcome.predictions, outcome.findings.numbers
    yield f"{len(predictions.names):,} images, {len(predictions.errors):,} of them could not be read"
    if "iou" in numbers:
        yield f"mean IoU of the classes {format_number(numbers['iou'])}"
    elif isinstance(predictions, Predictions) and numbers:
        known, error = int(predictions.judged.sum()), format_number(numbers["calibration_error"])
        accuracy = format_share(numbers["accuracy"])
        yield f"accuracy {accuracy} on the {known:,} whose class is known; calibration error {error}"
    times = [f"{format_number(value)} ms for {size}" for size, value in outcome.latency.items()]
    conditions = state_conditions(runtime, torch.get_num_threads())
    yield f"the network takes {', '.join(times)} (median of calls; {conditions})"
    for path in (outcome.csv, outcome.page):
        yield f"  {short_path(path)}"


if __name__ == "__main__":
    main()
