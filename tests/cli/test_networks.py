"""`train.py network=…`: training, loading, and ensembles of fixed networks."""

import json

import pytest
import torch

import nas_lightning
from nas_lightning.models.file import describe
from tests.cli.conftest import TINY_DATA

QUICK = (*TINY_DATA, "trainer.max_epochs=1")
TIMM = ("network=timm", "network.name=test_resnet")
CUSTOM = ("network=custom", "network.path=my_nets.Net")
CODE = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, num_classes, width=4):
        super().__init__(nn.Flatten(), nn.LazyLinear(width), nn.ReLU(), nn.Linear(width, num_classes))
"""


@pytest.fixture
def my_nets(tmp_path):
    (tmp_path / "my_nets.py").write_text(CODE)


def summary_of(run):
    return json.loads((run / "summary.json").read_text())


def test_train_save_load_and_finetune(tmp_path, command):
    code, out, err = command("train", *QUICK, *TIMM, "trainer.max_epochs=2", "run=a")
    assert (code, err) == (0, "")
    assert "Training test_resnet of timm on fake: " in out
    assert f"  network = nas_lightning.load('{tmp_path / 'a'}', with_normalization=True)" in out
    facts = summary_of(tmp_path / "a")
    assert (facts["space"], facts["notation"]) == ("timm", ["test_resnet"])
    network = nas_lightning.load("a")
    stored = torch.load("a/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    for name, value in network.state_dict().items():
        assert torch.equal(value, stored[f"network.{name}"]), name
    assert describe("a").image == (1, 8, 8)
    assert command("train", *TINY_DATA, "trainer.max_epochs=1", "pretrained=a", "run=b").code == 0
    others = ("dataset.num_classes=3", "callbacks.frozen.epochs=1", "trainer.max_epochs=1")
    code, out, _ = command("train", *TINY_DATA, *others, "pretrained=a", "retrain=finetune", "run=c")
    assert code == 0
    assert "from a with a new classifier of 3 classes" in out
    tuned = nas_lightning.load("c").state_dict()
    changed = {name for name, value in network.state_dict().items() if tuned[name].shape != value.shape}
    assert changed == {name for name in tuned if not torch.equal(tuned[name], network.state_dict()[name])}, (
        "one epoch trains the new classifier alone"
    )
    assert command("train", *QUICK, "genotype=file", "genotype.path=a", "run=d").code == 0
    assert summary_of(tmp_path / "d")["params"] == facts["params"]


def test_resume(tmp_path, command):
    assert command("train", *TINY_DATA, *TIMM, "trainer.max_epochs=2", "run=complete").code == 0
    stop = "+callbacks.stop={_target_:tests.cli.test_networks.Stop}"
    assert command("train", *TINY_DATA, *TIMM, "trainer.max_epochs=2", stop, "run=parts").code != 0
    assert command("train", "resume=parts", "callbacks.stop=null").code == 0
    complete, parts = (nas_lightning.load(run).state_dict() for run in ("complete", "parts"))
    assert all(torch.equal(complete[name], parts[name]) for name in complete)


class Stop:
    """Raise KeyboardInterrupt after the first epoch."""

    def __new__(cls):
        import pytorch_lightning as pl

        def stop(self, trainer, *args):
            if trainer.current_epoch == 1:
                raise KeyboardInterrupt

        return type("Stop", (pl.Callback,), {"on_train_batch_start": stop})()


def test_custom_networks_have_to_be_named(tmp_path, command, my_nets):
    code, out, err = command("train", *QUICK, *CUSTOM, "+network.args.width=5", "run=a")
    assert (code, err) == (0, "")
    assert f"nas_lightning.load('{tmp_path / 'a'}', with_normalization=True, modules=['my_nets.Net'])" in out
    assert "modules=[my_nets.Net]" in out
    assert (
        "A custom network must be allowed: pass modules=[…] with its class or its dotted name"
        in command("train", *QUICK, "pretrained=a", "run=b").err
    )
    assert command("train", *QUICK, "pretrained=a", "modules=[my_nets.Net]", "run=b").code == 0
    message = "names a custom module: `network.path` is 'my_nets.Net'"
    assert message in command("train", "resume=a").err
    assert command("train", "resume=a", "trust=true").code == 0


def test_ensemble_of_found_and_custom_networks(tmp_path, command, my_nets):
    sizes = ("network.channels=4", "network.cells=1")
    assert command("train", *QUICK, *sizes, "genotype=nasbench201_best", "run=a").code == 0
    assert command("train", *QUICK, *CUSTOM, "run=b").code == 0
    runs = ("ensemble=runs", "ensemble.runs=[a,b]")
    code, _, err = command("train", *QUICK, *runs, "modules=[my_nets.Net]", "run=c")
    assert (code, err) == (0, "")
    assert summary_of(tmp_path / "c")["members"] == 2
    assert (
        "A custom network must be allowed: pass modules=[…] with its class or its dotted name"
        in command("train", *QUICK, *runs, "run=d").err
    )


INVALID = [
    (
        ("genotype=darts_v2", *TIMM),
        "Choose one architecture, got genotype=… and network=…",
    ),
    (("network=tim",), "`network` has no option `tim`. Did you mean `timm`?"),
    (("network=timm",), "`network.name` needs a value"),
    (("network=timm", "network.name=resnet81"), "did you mean 'resnet18'?"),
    ((*TIMM, "network.channels=4"), "There is no setting `network.channels`"),
    (
        ("network=timm", "network.name=vit_tiny_patch16_224"),
        "doesn't match model (224)",
    ),
]


def test_invalid_settings(command, tmp_path):
    for argv, message in INVALID:
        code, _, err = command("train", *QUICK, *argv, "run=a")
        assert code == 1
        assert err.startswith("error: ")
        assert message in err
        assert err.count("\n") == 1
        assert not (tmp_path / "a").exists()
