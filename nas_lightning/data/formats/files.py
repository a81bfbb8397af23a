"""Images that are read from disk as they are drawn, in worker processes or not, with the same result."""

from __future__ import annotations

import io
import random as python_random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from nas_lightning.data.formats.listing import ImageFile
from nas_lightning.data.order import SAMPLE, Draw
from nas_lightning.data.samples import Samples, TensorSamples
from nas_lightning.errors import InputError
from nas_lightning.randomness import seed_of

MEMORY_LIMIT = 2 * 1024**3  # bytes that "auto" keeps
CHUNK = 256

InMemory = bool | Literal["auto"]
Transform = Callable[[Image.Image], Tensor]  # → (c, h, w) bytes
Item = tuple[int, int]  # row, seed


class FileSamples(Samples):
    """Image files, which `plain` (and, for training, `augmenting`) turns into bytes of one shape."""

    def __init__(
        self,
        files: Sequence[ImageFile],
        labels: Tensor,
        image: tuple[int, int, int],
        *,
        plain: Transform,
        augmenting: Transform | None = None,
        workers: int = 0,
        keep: InMemory = False,
    ) -> None:
        if workers < 0:
            raise InputError("expected num_workers of at least 0", got=workers)
        if keep not in (True, False, "auto"):
            raise InputError("expected in_memory to be auto, true or false", got=keep)
        self.files, self.labels, self.image = files, labels, image
        self.plain, self.augmenting, self.workers, self.keep = plain, augmenting, workers, keep

    def select(self, rows: Tensor) -> FileSamples:
        return FileSamples(
            [self.files[row] for row in rows.tolist()],
            self.labels[rows],
            self.image,
            plain=self.plain,
            augmenting=self.augmenting,
            workers=self.workers,
            keep=self.keep,
        )

    def read(self, draws: Iterable[Draw], *, random: bool) -> Iterator[tuple[Tensor, Tensor]]:
        draws = list(draws)
        augmenting = self.augmenting if random else None
        loader = DataLoader(
            _Reader(self.files, self.plain, augmenting),
            batch_sampler=(_items(draw) for draw in draws),
            num_workers=self.workers,
            collate_fn=_collate,
            pin_memory=torch.cuda.is_available(),
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
        for rows, (chunk, _) in zip(chunks, self.read(map(Draw, chunks), random=False), strict=True):
            images[rows] = chunk
        return TensorSamples(images, self.labels)


class _Reader(Dataset[Tensor | InputError]):
    """What workers run: an error is a result, which the main process raises with its own words."""

    def __init__(self, files: Sequence[ImageFile], plain: Transform, augmenting: Transform | None) -> None:
        self.files, self.plain, self.augmenting = files, plain, augmenting

    def __getitem__(self, item: Item) -> Tensor | InputError:
        row, seed = item
        try:
            image = decode(self.files[row])
        except InputError as error:
            return error
        if self.augmenting is None:
            return self.plain(image)
        with global_seeds(seed):
            return self.augmenting(image)


def _items(draw: Draw) -> list[Item]:
    """Each sample with its own seed, which follows from its position in the global batch."""
    return [(row, seed_of(SAMPLE, *draw.key, draw.first + i)) for i, row in enumerate(draw.rows.tolist())]


def _collate(images: list[Tensor | InputError]) -> Tensor | InputError:
    for image in images:
        if isinstance(image, InputError):
            return image
    return torch.stack(images)  # type: ignore[arg-type]


def decode(file: ImageFile) -> Image.Image:
    """The image in colour, or an `InputError` that names its file."""
    try:
        with open(file.path, "rb") as stream:
            stream.seek(file.offset)
            content = stream.read(file.size)
        with Image.open(io.BytesIO(content)) as image:
            return image.convert("RGB")
    except Exception as error:  # decoders raise whatever the broken bytes lead them to
        raise InputError(f"expected an image that can be read: {error}", where=file.label) from None


class Fit:
    """Resize an image until it covers height × width, and cut out its centre."""

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
