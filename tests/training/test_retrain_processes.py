"""Two processes with batches of b train and measure what one does with 2b."""

import json
import os
import subprocess
import sys

import pytest

# A program, because a process that has run threads should not be forked.
PROGRAM = """
import json, sys
import pytorch_lightning as pl
import torch
from torch import nn
from nas_lightning.data.datasets import Fake
from nas_lightning.training.retrain import freeze_unused
from nas_lightning.training.retrain import Retrain
from nas_lightning.spaces import NasBench201

torch.set_num_threads(1)
torch.manual_seed(0)
devices = int(sys.argv[1])
space = NasBench201()
genotype = space.parse(sys.argv[2])
network = space.network(genotype, in_channels=3, num_classes=7, channels=4, cells=1, auxiliary=True)
for module in list(network.modules()):
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):  # it would normalize with each process's half
            setattr(module, name, nn.Identity())
data = Fake(
    num_classes=7, train_size=64, test_size=21, batch_size=16 // devices, eval_batch_size=4, val_fraction=0.25
)
freeze_unused(network, data.image)
module = Retrain(network.double(), 7, lr=0.1, drop_path=0.0, clip=0.5, ema_decay=0.6)
trainer = pl.Trainer(
    max_epochs=2, precision="64-true", accelerator="cpu", devices=devices,
    strategy="auto" if devices == 1 else "ddp_fork", logger=False, enable_progress_bar=False,
    enable_checkpointing=False, enable_model_summary=False,
)
trainer.fit(module, data)
metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
metrics |= trainer.test(module, data, verbose=False)[0]
weights = torch.cat([p.detach().flatten() for p in module.parameters()])
print(json.dumps({"metrics": metrics, "weights": weights.tolist()}))
"""


WHOLE = "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|avg_pool_3x3~0|nor_conv_1x1~1|nor_conv_3x3~2|"
UNUSED = (
    "|nor_conv_3x3~0|+|nor_conv_1x1~0|nor_conv_3x3~1|+|nor_conv_1x1~0|none~1|none~2|"  # what makes node 2
)


def run(devices, cell):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(devices), cell], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "sync_dist" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("cell", [WHOLE, UNUSED])
def test_two_processes_equal_one(cell):
    one, two = run(1, cell), run(2, cell)
    assert two["weights"] == pytest.approx(one["weights"], rel=1e-10, abs=1e-12)
    assert two["metrics"] == pytest.approx(one["metrics"], rel=1e-6)
    # 21 test images: a whole number of them is right, although two processes cannot share them evenly
    right = 21 * two["metrics"]["test_accuracy"]
    assert right == pytest.approx(round(right), abs=1e-4)
    assert {"train_loss", "valid_accuracy", "test_error"} <= set(two["metrics"])
