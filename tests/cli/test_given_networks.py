"""`train.py network=…`: training, loading, and ensembles of fixed networks."""

import json

import pytest
import torch

import nas_lightning
from nas_lightning.models.file import describe
from tests.cli.conftest import TINY_DATA

QUICK = (*TINY_DATA, "trainer.max_epochs=1")
TIMM = ("network=timm", "network.name=test_resnet")
OWN = ("network=custom", "network.path=my_nets.Net")
CODE = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, num_classes, width=4):
        super().__init__(nn.Flatten(), nn.LazyLinear(width), nn.ReLU(), nn.Linear(width, num_classes))
"""


@pytest.fixture
def my_nets(tmp_path):
    (tmp_path / "my_nets.py").write_text(CODE)


def claimed(run):
    return json.loads((run / "summary.json").read_text())


def test_trained_saved_loaded_and_trained_on(tmp_path, command):
    code, out, err = command("train", *QUICK, *TIMM, "trainer.max_epochs=2", "run=a")
    assert (code, err) == (0, "")
    assert "Training test_resnet of timm on fake: " in out
    assert f"  network = nas_lightning.load('{tmp_path / 'a'}')" in out
    facts = claimed(tmp_path / "a")
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
    assert claimed(tmp_path / "d")["params"] == facts["params"]


def test_it_goes_on_to_the_same_bits(tmp_path, command):
    assert command("train", *TINY_DATA, *TIMM, "trainer.max_epochs=2", "run=whole").code == 0
    stop = "+callbacks.stop={_target_:tests.cli.test_given_networks.Stop}"
    assert command("train", *TINY_DATA, *TIMM, "trainer.max_epochs=2", stop, "run=parts").code != 0
    assert command("train", "resume=parts", "callbacks.stop=null").code == 0
    whole, parts = (nas_lightning.load(run).state_dict() for run in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


class Stop:
    """Raise KeyboardInterrupt after the first epoch."""

    def __new__(cls):
        import pytorch_lightning as pl

        def stop(self, trainer, *args):
            if trainer.current_epoch == 1:
                raise KeyboardInterrupt

        return type("Stop", (pl.Callback,), {"on_train_batch_start": stop})()


def test_a_network_of_ones_own_has_to_be_named(tmp_path, command, my_nets):
    code, out, err = command("train", *QUICK, *OWN, "+network.args.width=5", "run=a")
    assert (code, err) == (0, "")
    assert f"nas_lightning.load('{tmp_path / 'a'}', modules=['my_nets.Net'])" in out
    assert "modules=[my_nets.Net]" in out
    assert "expected a network that you allow" in command("train", *QUICK, "pretrained=a", "run=b").err
    assert command("train", *QUICK, "pretrained=a", "modules=[my_nets.Net]", "run=b").code == 0
    refused = command("train", "resume=a").err
    assert "names a custom module: `network.path` is 'my_nets.Net'" in refused
    assert command("train", "resume=a", "trust=true").code == 0


def test_one_ensemble_of_found_and_given_networks(tmp_path, command, my_nets):
    sizes = ("network.channels=4", "network.cells=1")
    assert command("train", *QUICK, *sizes, "genotype=nasbench201_best", "run=a").code == 0
    assert command("train", *QUICK, *OWN, "run=b").code == 0
    runs = ("ensemble=runs", "ensemble.runs=[a,b]")
    code, _, err = command("train", *QUICK, *runs, "modules=[my_nets.Net]", "run=c")
    assert (code, err) == (0, "")
    assert claimed(tmp_path / "c")["members"] == 2
    assert "expected a network that you allow" in command("train", *QUICK, *runs, "run=d").err
    assert command("train", *QUICK, *TIMM, "ensemble=deep", "ensemble.count=2", "run=e").code == 0


REFUSED = {
    "two architectures": (
        ("genotype=darts_v2", *TIMM),
        "Choose one architecture, got genotype=… and network=…",
    ),
    "a source that is none": (("network=tim",), "`network` has no option `tim`. Did you mean `timm`?"),
    "no name": (("network=timm",), "`network.name` needs a value"),
    "a near name": (("network=timm", "network.name=resnet81"), "did you mean 'resnet18'?"),
    "a size of another": ((*TIMM, "network.channels=4"), "There is no setting `network.channels`"),
    "an image of another size": (
        ("network=timm", "network.name=vit_tiny_patch16_224"),
        "doesn't match model (224)",
    ),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_one_line(words, message, command, tmp_path):
    code, _, err = command("train", *QUICK, *words, "run=a")
    assert code == 1
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "a").exists()
