"""Images that are read from disk as they are drawn, in worker processes or not, with the same result."""

from __future__ import annotations

import os
import random as python_random
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from nas_lightning.checks import NonNegativeInt, PositiveInt, checked
from nas_lightning.data.formats.decode import MOST_PIXELS, decode
from nas_lightning.data.formats.listing import ImageFile
from nas_lightning.data.order import SAMPLE, BatchRows
from nas_lightning.data.samples import Samples, TensorSamples
from nas_lightning.errors import InputError
from nas_lightning.randomness import seed_of

MEMORY_LIMIT = 2 * 1024**3  # bytes that "auto" keeps
CHUNK = 256

InMemory = bool | Literal["auto"]
Transform = Callable[[Image.Image], Tensor]  # → (c, h, w) bytes
Item = tuple[int, int]  # row, seed


class FileSamples(Samples):
    """Image files, which are turned into bytes of one shape when they are read.

    Args:
        files: where they are.
        labels: (n,), one for each.
        image: (channels, height, width) of what `plain` and `augmenting` return.
        plain: image → bytes, for evaluation.
        augmenting: the same for training, where that is random; None: `plain`.
        workers: processes that read.
        keep: whether `in_memory` reads them all; "auto": up to 2 GB.
        most_pixels: of a file; larger images are refused before they are decoded.
    """

    @checked
    def __init__(
        self,
        files: Sequence[ImageFile],
        labels: Tensor,
        image: tuple[int, int, int],
        *,
        plain: Transform,
        augmenting: Transform | None = None,
        workers: NonNegativeInt = 0,
        keep: InMemory = False,
        most_pixels: PositiveInt = MOST_PIXELS,
    ) -> None:
        self.files, self.labels, self.image, self.most_pixels = files, labels, image, most_pixels
        self.plain, self.augmenting, self.workers, self.keep = plain, augmenting, workers, keep

    def name(self, row: int) -> str:
        return self.files[row].label

    def select(self, rows: Tensor) -> FileSamples:
        return FileSamples(
            [self.files[row] for row in rows.tolist()],
            self.labels[rows],
            self.image,
            plain=self.plain,
            augmenting=self.augmenting,
            workers=self.workers,
            keep=self.keep,
            most_pixels=self.most_pixels,
        )

    def read(self, draws: Iterable[BatchRows], *, random: bool) -> Iterator[tuple[Tensor, Tensor]]:
        draws = list(draws)
        augmenting = self.augmenting if random else None
        loader = DataLoader(
            _Reader(self.files, self.plain, augmenting, self.most_pixels),
            batch_sampler=(_items(draw) for draw in draws),
            num_workers=self.workers,
            collate_fn=_collate,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=_end_when_told,
            generator=torch.Generator(),  # its own, or each pass would advance the global one
        )
        for draw, images in zip(draws, loader, strict=True):
            if isinstance(images, InputError):
                raise images
            yield images, self.labels[draw.rows]

    def in_memory(self) -> Samples:
        size = len(self) * int(np.prod(self.image))
        if not (self.keep is True or (self.keep == "auto" and size <= MEMORY_LIMIT)):
            return self
        images = torch.empty((len(self), *self.image), dtype=torch.uint8)
        chunks = torch.arange(len(self)).split(CHUNK)
        for rows, (chunk, _) in zip(chunks, self.read(map(BatchRows, chunks), random=False), strict=True):
            images[rows] = chunk
        return TensorSamples(images, self.labels, names=[file.label for file in self.files])


def _end_when_told(worker: int) -> None:
    """A worker says nothing of its end where the whole group of processes is told to: the run says it."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


class _Reader(Dataset[Tensor | InputError]):
    """What workers run: an error is a result, which the main process raises with its own words."""

    def __init__(
        self, files: Sequence[ImageFile], plain: Transform, augmenting: Transform | None, most_pixels: int
    ) -> None:
        self.files, self.plain, self.augmenting, self.most_pixels = files, plain, augmenting, most_pixels

    def __getitem__(self, item: Item) -> Tensor | InputError:
        row, seed = item
        try:
            image = decode(self.files[row], self.most_pixels)
        except InputError as error:
            return error
        if self.augmenting is None:
            return self.plain(image)
        with global_seeds(seed):
            return self.augmenting(image)


def _items(draw: BatchRows) -> list[Item]:
    """Each sample with its own seed, which follows from its position in the global batch."""
    return [(row, seed_of(SAMPLE, *draw.key, draw.first + i)) for i, row in enumerate(draw.rows.tolist())]


def _collate(images: list[Tensor | InputError]) -> Tensor | InputError:
    for image in images:
        if isinstance(image, InputError):
            return image
    return torch.stack(images)  # type: ignore[arg-type]


class Fit:
    """Resize an image until it covers height × width, and cut out its centre.

    Args:
        height: of the result, in pixels.
        width: of the result, in pixels.
    """

    def __init__(self, height: int, width: int) -> None:
        self.size = (width, height)

    def __call__(self, image: Image.Image) -> Tensor:
        if image.size != self.size:
            image = ImageOps.fit(image, self.size, method=Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


@contextmanager
def global_seeds(seed: int) -> Iterator[None]:
    """The global generators that transforms draw from, seeded; afterwards they are as before."""
    before = python_random.getstate(), np.random.get_state(), torch.get_rng_state()
    python_random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        python_random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])
