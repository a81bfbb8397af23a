"""Loaders that only evaluate: every sample once, and each process has its share."""

from __future__ import annotations

from collections.abc import Iterator

from nas_lightning.data.augment import normalise
from nas_lightning.data.batches import Batch
from nas_lightning.data.order import evaluation_rows, rank_and_world
from nas_lightning.data.samples import Samples
from nas_lightning.data.streams import Stream


class EvalLoader:
    """Every sample exactly once, in order and without augmentation; each process reads its own share.

    Args:
        samples: some of a data set.
        batch_size: images of a batch of one process.
        mean: of each channel, as a fraction of the largest value.
        std: of each channel, as a fraction of the largest value.
    """

    def __init__(
        self, samples: Samples, batch_size: int, mean: tuple[float, ...], std: tuple[float, ...]
    ) -> None:
        self.samples, self.batch_size, self.mean, self.std = samples, batch_size, mean, std

    def __len__(self) -> int:
        return len(evaluation_rows(len(self.samples), self.batch_size, *rank_and_world()))

    def __iter__(self) -> Iterator[Batch]:
        draws = evaluation_rows(len(self.samples), self.batch_size, *rank_and_world())
        for x, y in self.samples.read(draws, random=False):
            yield normalise(x, self.mean, self.std), y


class SharedBatches:
    """Every batch of a pass once; of several processes each has its share of every batch.

    Args:
        stream: whose batches.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __len__(self) -> int:
        """Raises TypeError where nobody knows."""
        return len(self.stream) * rank_and_world()[1]

    def __iter__(self) -> Iterator[Batch]:
        rank, world = rank_and_world()
        for x, y in self.stream.once():
            yield x[rank::world], y[rank::world]
