"""Export a trained network or ensemble to ONNX or to torch.export's `.pt2`.

nas-export RUN FILE [--input float|uint8|normalized] [--batch N] [--dynamic-size] [--benchmark] [--threads 1]

The file normalizes images itself: it takes values from 0 to 1 (float), or from 0 to 255 (uint8). Its metadata
has the names of the classes, the mean and standard deviation, and the size of the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.flags import FlagParser, add_own_parts, command, own_parts, place_to_write
from nas_lightning.utils.machine import check_processes


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Export a trained network; print the file, its size, the largest difference, and its images."""
    parser = FlagParser(prog="nas-export", description=__doc__.split("\n")[0])
    parser.add_argument("source", help="the folder of a training or of an ensemble, or a model.safetensors")
    parser.add_argument("target", type=place_to_write, help="the .onnx or .pt2 file to write")
    parser.add_argument(
        "--batch", default="dynamic", help="batch size, or dynamic for any (default: dynamic)"
    )
    parser.add_argument("--dynamic-size", action="store_true", help="accept images of other sizes")
    parser.add_argument(
        "--input",
        choices=("float", "uint8", "normalized"),
        default="float",
        help="values of the images: float, from 0 to 1 (default); uint8, from 0 to 255; or normalized by you",
    )
    parser.add_argument(
        "--benchmark", action="store_true", help="measure latency and memory of the exported file"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of the measurement (default: 1)")
    add_own_parts(parser)
    options = parser.parse_args(arguments)
    batch = None
    if options.batch != "dynamic":
        if not options.batch.isdecimal() or len(options.batch) > 4:
            raise InputError(
                "`--batch` must be a number below 10,000, or dynamic", got=options.batch, where="--batch"
            )
        batch = int(options.batch)
    if options.threads < 1:
        raise InputError("`--threads` must be at least 1", got=options.threads, where="--threads")
    check_processes(options.threads, "--threads")
    own: dict[str, Any] = own_parts(options)
    from nas_lightning.models import deploy, latency  # import torch, which --help does not need

    exported = deploy.export_run(
        options.source, options.target, options.input, batch=batch, dynamic_size=options.dynamic_size, **own
    )
    print(exported)
    print(f"images: {deploy.VALUES[options.input]}; its metadata has classes, mean, std, and size")
    if options.benchmark:
        network, about = deploy.trained_network(options.source, options.input, **own)
        how: dict[str, Any] = {"threads": options.threads, "dtype": deploy.dtype_of(options.input)}
        print(latency.benchmark(exported.path, network, about.image, batch, **how))


if __name__ == "__main__":
    main()
