"""Export a trained network to ONNX or to torch.export's `.pt2`.

nas-export RUN FILE [--batch N] [--dynamic-size] [--with-normalization] [--benchmark]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nas_lightning.errors import InputError
from nas_lightning.flags import FlagParser, add_own_parts, command, own_parts, place_to_write
from nas_lightning.models.export import benchmark, export
from nas_lightning.models.file import describe, load


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Export a trained network; print the file, its size, and the largest difference."""
    parser = FlagParser(prog="nas-export", description=__doc__.split("\n")[0])
    parser.add_argument("source", help="the folder of a run of train.py, or its model.safetensors")
    parser.add_argument("target", type=place_to_write, help="the .onnx or .pt2 file to write")
    parser.add_argument(
        "--batch", default="dynamic", help="batch size, or dynamic for any (default: dynamic)"
    )
    parser.add_argument("--dynamic-size", action="store_true", help="accept images of other sizes")
    parser.add_argument(
        "--with-normalization", action="store_true", help="accept unnormalized images with values from 0 to 1"
    )
    parser.add_argument(
        "--benchmark", action="store_true", help="measure latency and memory of the exported file"
    )
    add_own_parts(parser)
    options = parser.parse_args(arguments)
    batch = None
    if options.batch != "dynamic":
        if not options.batch.isdecimal() or len(options.batch) > 4:
            raise InputError("expected a number below 10,000 or dynamic", got=options.batch, where="--batch")
        batch = int(options.batch)
    own: dict[str, Any] = own_parts(options)
    network = load(options.source, with_normalization=options.with_normalization, **own)
    image = describe(options.source).image
    exported = export(network, options.target, image, batch=batch, dynamic_size=options.dynamic_size)
    print(exported)
    if options.benchmark:
        print(benchmark(exported.path, network, image, batch))


if __name__ == "__main__":
    main()
