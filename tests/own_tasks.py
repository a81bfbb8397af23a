"""Generated data with known answers, for each task."""

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

SIDE = 16


def noise(count: int) -> Tensor:
    return 0.1 * torch.randn(count, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(count))


def means(count: int) -> tuple[Tensor, Tensor]:
    """An image's brightness, and the number that it is: (b,)."""
    value = torch.linspace(-1, 1, count)[torch.randperm(count, generator=torch.Generator().manual_seed(0))]
    return noise(count) + value.view(-1, 1, 1, 1), value


def halves(count: int) -> tuple[Tensor, Tensor]:
    """Whether the upper half is bright, and whether the left half is: (b, 2)."""
    said = torch.stack([torch.arange(count) % 2, torch.arange(count) // 2 % 2], dim=1)
    x = noise(count)
    x[:, :, : SIDE // 2] += said[:, 0].view(-1, 1, 1, 1)
    x[:, :, :, : SIDE // 2] += said[:, 1].view(-1, 1, 1, 1)
    return x, said


def bright(count: int) -> tuple[Tensor, Tensor]:
    """Whether an image is bright: (b, 1) truth values."""
    said = torch.arange(count) % 2 == 1
    return noise(count) + said.view(-1, 1, 1, 1).float(), said[:, None]


def rectangles(count: int) -> tuple[Tensor, Tensor]:
    """A bright and a dark rectangle somewhere, and the mask of both: (b, h, w) of 0, 1 and 2."""
    random = torch.Generator().manual_seed(7)
    x, masks = noise(count), torch.zeros(count, SIDE, SIDE, dtype=torch.uint8)
    for number in range(count):
        for label, value in ((1, 1.0), (2, -1.0)):
            top, left = torch.randint(0, 8, (2,), generator=random).tolist()
            part = slice(top, top + 6), slice(left, left + 6)
            x[number, 0][part], masks[number][part] = value, label
    return x, masks


MADE = {"regression": means, "multi_label": halves, "binary": bright, "segmentation": rectangles}
OUTPUTS = {"regression": 1, "multi_label": 2, "binary": 1, "segmentation": 3}


class Made(pl.LightningDataModule):
    """96 images of a task to train on, 32 others to validate and to test."""

    def __init__(self, task: str, count: int = 128) -> None:
        super().__init__()
        x, y = MADE[task](count)
        first = 3 * count // 4
        self.parts = TensorDataset(x[:first], y[:first]), TensorDataset(x[first:], y[first:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.parts[0], 16, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.parts[1], 16)

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.parts[1], 16)
