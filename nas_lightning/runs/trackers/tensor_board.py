"""TensorBoard: pictures, cells over epochs, genotypes and sizes beside the metrics."""

from __future__ import annotations

from nas_lightning.files import json_text
from nas_lightning.runs.publication import Publication
from nas_lightning.runs.tracking import Tracker


class TensorBoardTracker(Tracker):
    """What TensorBoard has places for; files and pages it has none for.

    Args:
        logger: Lightning's `TensorBoardLogger`.
    """

    of = "TensorBoardLogger"

    def publish(self, publication: Publication) -> None:
        import numpy as np
        from PIL import Image

        writer = self.logger.experiment
        writer.add_text("config", f"```\n{json_text(publication.config, 2)}\n```")
        for epoch, picture in publication.cells():
            writer.add_image("cells", np.asarray(picture.convert("RGB")), epoch, dataformats="HWC")
        for name, path in publication.pictures.items():
            with Image.open(path) as picture:
                writer.add_image(name, np.asarray(picture.convert("RGB")), dataformats="HWC")
        table = publication.genotypes()
        if table.rows:
            writer.add_text("genotypes", table.markdown())
        for name in ("params", "macs", "seconds"):
            if name in publication.numbers:
                writer.add_scalar(name, publication.numbers[name])

    def close(self, *, failed: bool) -> None:
        self.logger.finalize("failed" if failed else "success")
