"""Images a second with augmentation: batches from memory against torchvision, image by image.

    python -m benchmarks.input_pipeline

Both crop with 4 pixels of padding, mirror, normalize and erase a square of 16 of 32×32 color images, on one
thread. CPU time, the two interleaved, medians; the last line is the ratio.
"""

import random
import statistics
import time

import torch
from PIL import Image
from torchvision import transforms

from benchmarks.timing import report
from nas_lightning.data import Fake
from nas_lightning.data.augment import Augment
from nas_lightning.data.order import BatchRows

BATCH, BATCHES, ROUNDS = 96, 10, 9


def cutout(image: torch.Tensor, side: int = 16) -> torch.Tensor:
    """Erase a square of one image, as training scripts do."""
    y, x = random.randrange(32) - side // 2, random.randrange(32) - side // 2
    image[:, max(0, y) : max(0, y + side), max(0, x) : max(0, x + side)] = 0
    return image


def seconds(work) -> float:
    """Return the CPU time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    data = Fake(shape=(3, 32, 32), num_classes=10, train_size=5000, test_size=10, batch_size=BATCH)
    data.augment = Augment(crop_padding=4, flip=True, cutout=16)
    batches = data.batches(data.train)

    images = next(data.train.read([BatchRows(torch.arange(len(data.train)))], random=False))[0]
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    one = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(data.mean, data.std),
            cutout,
        ]
    )

    def ours() -> None:
        for _ in batches.batches(epoch=0, start=0, count=BATCHES):
            pass

    def reference() -> None:
        order = torch.randperm(len(pictures)).tolist()
        for start in range(0, BATCH * BATCHES, BATCH):
            torch.stack([one(pictures[index]) for index in order[start : start + BATCH]])

    times = {ours: [], reference: []}
    for _ in range(ROUNDS + 1):
        for work, measured in times.items():
            measured.append(seconds(work))
    fast, slow = (statistics.median(measured[1:]) for measured in times.values())  # the first round warms up
    report({"batches from memory": fast, "image by image": slow})
    print(f"ratio: {slow / fast:.1f}")


if __name__ == "__main__":
    main()
