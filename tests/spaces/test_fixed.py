"""Fixed networks: built, saved, loaded, exported, and fine-tuned like searched ones."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import nas_lightning
from nas_lightning.models.export import export
from nas_lightning.models.file import describe, description, materialize, save, take_weights_over
from nas_lightning.spaces import CustomNetwork, TimmNetwork, TorchvisionNetwork, make_space
from nas_lightning.training.retrain import check_forward, freeze_unused, training_logits

IMAGE, CLASSES = (1, 32, 32), ("cat", "dog", "owl")


class Lazy(nn.Module):
    """Lazy layers, tied weights, a dict with an auxiliary head, perhaps a choice by values."""

    def __init__(self, n_classes: int, width: int = 6, by_value: bool = False) -> None:
        super().__init__()
        self.by_value = by_value
        self.body = nn.Sequential(nn.Flatten(), nn.LazyLinear(width))
        self.head, self.again, self.aux = (nn.Linear(width, n_classes) for _ in range(3))
        self.again.weight = self.head.weight

    def forward(self, x):
        features = self.body(x).relu()
        if self.by_value and features.max().item() < 0:  # no shape says that
            raise ValueError(features)
        return {"aux": self.aux(features), "logits": self.head(features) + self.again(features)}


def plain(num_classes: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(1024, 5), nn.BatchNorm1d(5), nn.Linear(5, num_classes))


VIT = {"img_size": 32, "patch_size": 8}
SPACES = {
    "timm": lambda: TimmNetwork("test_resnet"),
    "timm's ViT": lambda: TimmNetwork("test_vit", VIT),
    "timm's EfficientNet": lambda: TimmNetwork("test_efficientnet", {"drop_path_rate": 0.1}),
    "timm's ConvNeXt": lambda: TimmNetwork("test_convnext"),
    "torchvision": lambda: TorchvisionNetwork("squeezenet1_1"),
    "torchvision's RegNet, which is built of values": lambda: TorchvisionNetwork("regnet_x_400mf"),
    "own": lambda: CustomNetwork(Lazy, {"width": 4}),
    "own by values": lambda: CustomNetwork(Lazy, {"by_value": True}),
    "own sequential": lambda: CustomNetwork(plain),
}


def built(space, classes=CLASSES) -> nn.Module:
    network = space.network(space.genotype, in_channels=1, num_classes=len(classes))
    materialize(network, IMAGE)
    return network.eval()


def logits(network, x):
    output = network(x)
    return output["logits"] if isinstance(output, dict) else output


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_saved_network_is_loaded(space, tmp_path):
    space = space()
    network, x = built(space), torch.randn(2, *IMAGE)
    check_forward(network, IMAGE, len(CLASSES))
    path = save(network, tmp_path / "a", space, space.genotype, {}, image=IMAGE, classes=CLASSES)
    allowed = {"modules": [Lazy, plain]} if space.modules else {}
    again = nas_lightning.load(path, **allowed)
    assert torch.equal(logits(again, x), logits(network, x))
    assert not again.training
    known = describe(path, **allowed)
    assert known.genotype == space.genotype
    assert known.make_space().notation(known.genotype) == space.notation(space.genotype)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize(
    "classes", [CLASSES, ("cat", "dog"), ("a", "b", "c")], ids=["same", "fewer", "others"]
)
def test_fine_tuning_inherits_all_but_the_classifier(space, classes, tmp_path):
    space = space()
    network, other = built(space), built(space, classes)
    path = save(network, tmp_path / "a", space, space.genotype, {}, image=IMAGE, classes=CLASSES)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    own = description(space, space.genotype, {}, IMAGE, classes).own
    assert take_weights_over(other, path, classes, **own) == (classes == CLASSES)
    stored, now = network.state_dict(), other.state_dict()
    changed = {name for name in stored if stored[name].shape != before[name].shape}
    if classes == ("a", "b", "c"):
        assert not changed
        new = [name for name in now if torch.equal(now[name], before[name])]
        assert any(not torch.equal(now[name], stored[name]) for name in new)
    for name in changed:
        assert torch.equal(now[name], before[name])
    inherited = sum(torch.equal(now[name], stored[name]) for name in now if name not in changed)
    assert inherited >= len(stored) - 6, "all but the classifier's"


@pytest.mark.parametrize("name", ["timm's ViT", "own"])
def test_export_has_only_the_logits(name, tmp_path):
    assert export(built(SPACES[name]()), tmp_path / "a.onnx", IMAGE).difference < 1e-5


def test_export_of_value_dependent_network_is_refused(tmp_path, refusal):
    said = refusal(export, built(SPACES["own by values"]()), tmp_path / "a.pt2", IMAGE)
    assert "The operations of the network must be the same for all images:" in said
    assert not (tmp_path / "a.pt2").exists()


def test_model_file_imports_nothing(tmp_path, refusal, monkeypatch):
    space = CustomNetwork(plain)
    marker = "m" * (len(space.title) - len(".plain"))
    (tmp_path / f"{marker}.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = save(built(space), tmp_path / "a", space, space.genotype, {}, image=IMAGE, classes=CLASSES)
    text = Path(path).read_bytes().replace(space.title.encode(), f"{marker}.plain".encode())
    Path(path).write_bytes(text)
    assert "A custom network must be allowed: pass modules=[…] with its class or its dotted name" in refusal(
        nas_lightning.load, path
    )
    assert "must be allowed" in refusal(lambda: nas_lightning.load(path, modules=[plain]))
    assert marker not in sys.modules
    with pytest.raises(SystemExit, match="imported"):  # as it is where the user names it
        nas_lightning.load(path, modules=[f"{marker}.plain"])


REFUSED = {
    "a name nearly timm's": (TimmNetwork, ("resnet81",), "did you mean 'resnet18'?"),
    "a name nearly torchvision's": (TorchvisionNetwork, ("resnet19",), "did you mean 'resnet1"),
    "a model of a hub": (TimmNetwork, ("hf-hub:a/b",), "Unknown network of timm"),
    "a file of weights": (
        TimmNetwork,
        ("test_vit", {"checkpoint_path": "/a"}),
        "network.pretrained=true",
    ),
    "weights from the net": (
        TorchvisionNetwork,
        ("resnet18", {"weights": "DEFAULT"}),
        "pretrained=true or pretrained=FILE",
    ),
    "no module": (
        CustomNetwork,
        ("torch.nn.functional.relu",),
        "Cannot build torch.nn.functional.relu with these arguments",
    ),
    "a module that is not there": (CustomNetwork, ("no.net.MyNet",), "Cannot import"),
    "no network": (CustomNetwork, ("builtins.dict",), "that returns a torch.nn.Module, got 'dict'"),
    "unknown arguments": (
        TimmNetwork,
        ("test_resnet", {"widht": 3}),
        "Cannot build",
    ),
}


def test_invalid_networks_are_refused_in_one_line(refusal):
    for source, args, message in REFUSED.values():
        said = refusal(lambda: built(source(*args)))
        assert message in said
        assert "\n" not in said


def test_unknown_names_in_files_are_refused(refusal):
    for name in ["timm", "torchvision"]:
        assert "Unknown network of" in refusal(make_space, name, {"name": "resnet81"})
        assert "Invalid settings of" in refusal(make_space, name, {})


def test_wrong_image_sizes_are_refused(refusal):
    network = built(TimmNetwork("vit_tiny_patch16_224", {"depth": 1}))
    said = refusal(check_forward, network, IMAGE, 3)
    assert "The network fails on images of (1, 32, 32): AssertionError: Input height (32)" in said
    said = refusal(check_forward, built(CustomNetwork(plain)), IMAGE, 4)
    assert said == "Logits must have shape (2, 4) for two images and 4 classes, got (2, 3) (in network)"


def test_pretrained_weights_are_inherited_where_they_fit(monkeypatch):
    """torchvision's `DEFAULT`, which would be downloaded, is what a seed draws here."""
    import torchvision

    original, asked = torchvision.models.get_model, []

    def get_model(name, weights=None, **options):
        asked.append(weights)
        torch.manual_seed(1 if weights else 2)
        return original(name, **options)

    monkeypatch.setattr(torchvision.models, "get_model", get_model)
    space = TorchvisionNetwork("squeezenet1_1", pretrained=True)
    network = space.network(space.genotype, in_channels=3, num_classes=3)
    assert asked == [None, "DEFAULT"]
    torch.manual_seed(1)
    source = original("squeezenet1_1")
    assert torch.equal(network.features[0].weight, source.features[0].weight)
    assert network.classifier[1].out_channels == 3
    assert "pretrained" not in space.settings, "a file has its own weights"


def test_unused_parameters_of_a_network_that_decides_by_values():
    network = built(SPACES["own by values"]()).train()
    network.unused = nn.Linear(2, 2)
    freeze_unused(network, IMAGE)
    frozen = {name for name, p in network.named_parameters() if not p.requires_grad}
    assert frozen == {"unused.weight", "unused.bias"}


def test_auxiliary_heads_are_found_by_name():
    network, x = built(CustomNetwork(Lazy)), torch.randn(2, *IMAGE)
    main, auxiliary = training_logits(network, x)
    assert torch.equal(main, network(x)["logits"])
    assert torch.equal(auxiliary, network(x)["aux"])
