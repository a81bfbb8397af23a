"""Derived networks in timm's functions and scripts."""

import copy
import sys

import pytest
import timm
import torch
from timm.data import create_transform, resolve_data_config
from timm.models import group_parameters, load_checkpoint, model_parameters
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3

import nas_lightning.models.timm
from nas_lightning.genotype import write_genotypes
from nas_lightning.models.file import save
from nas_lightning.models.timm import main
from nas_lightning.spaces import DartsNasi, DartsSpace, NasBench101, NasBench201

CELL = "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|nor_conv_1x1~2|"
MODELS = {
    "nas_darts": (DartsSpace(), {"channels": 4, "cells": 6}, [(16, 1), (32, 2), (64, 4)]),
    "nas_darts_nasi": (DartsNasi(), {"channels": 4, "cells": 6}, [(16, 1), (32, 2), (64, 4)]),
    "nas_nasbench201": (NasBench201(), {"channels": 4, "cells": 2}, [(4, 1), (8, 2), (16, 4)]),
    "nas_nasbench101": (NasBench101(), {"channels": 8, "cells": 2}, [(8, 1), (16, 2), (32, 4)]),
}


def sample_path(name):
    return MODELS[name][0].sample(torch.Generator().manual_seed(0))


def model_of(name, **options):
    return timm.create_model(name, genotype=sample_path(name), **{**MODELS[name][1], **options})


def network_of(name, num_classes=10, **sizes):
    space, size, _ = MODELS[name]
    network = space.network(
        sample_path(name), in_channels=3, num_classes=num_classes, **{"auxiliary": False, **size, **sizes}
    )
    network(torch.randn(8, 3, 16, 16))
    return network.eval()


@pytest.fixture
def run(tmp_path):
    """The folder of a trained network of three classes."""
    network = network_of("nas_nasbench201", num_classes=3)
    space, sizes, _ = MODELS["nas_nasbench201"]
    known = {"image": (3, 16, 16), "classes": "abc", "mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    save(network, tmp_path / "model.safetensors", space, sample_path("nas_nasbench201"), sizes, **known)
    return tmp_path, network


def test_all_are_registered():
    assert set(timm.list_models("nas_*")) == set(MODELS) == set(nas_lightning.models.timm.default_cfgs)


@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_same_network(name):
    network, model = network_of(name), model_of(name).eval()
    model.load_state_dict(network.state_dict())  # under the same names
    x = torch.randn(2, 3, 17, 15)
    torch.testing.assert_close(model(x), network(x))
    features = model.forward_features(x)
    torch.testing.assert_close(model.forward_head(features), network(x))
    pooled = model.forward_head(features, pre_logits=True)
    assert pooled.shape == (2, model.num_features)
    torch.testing.assert_close(model.get_classifier()(pooled), network(x))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cls", ["getter", "hook"])
def test_features_are_those_before_each_reduction(name, cls):
    expected = MODELS[name][2]
    model = model_of(name, features_only=True, feature_cls=cls).eval()
    assert model.feature_info.channels() == [channels for channels, _ in expected]
    assert model.feature_info.reduction() == [reduction for _, reduction in expected]
    x = torch.randn(2, 3, 32, 32)
    found = model(x)
    shapes = [(2, channels, 32 // reduction, 32 // reduction) for channels, reduction in expected]
    assert [tuple(features.shape) for features in found] == shapes
    network = network_of(name)
    whole = model_of(name).eval()
    whole.load_state_dict(network.state_dict())
    outputs = list(network.backbone.cells_outputs(x))
    last, features = whole.forward_intermediates(x)
    torch.testing.assert_close(last, whole.forward_features(x))
    assert all(any(torch.equal(one, other) for other in outputs) for one in features)
    assert torch.equal(features[-1], outputs[-1])
    assert all(parameter.requires_grad for parameter in model.parameters())
    sum(f.sum() for f in model(x)[:2]).backward()


def test_some_of_the_features():
    model = model_of("nas_darts", features_only=True, out_indices=(0, 2)).eval()
    assert model.feature_info.channels() == [16, 64]
    assert [features.shape[1] for features in model(torch.randn(2, 3, 16, 16))] == [16, 64]
    whole = model_of("nas_nasbench201").eval()
    x = torch.randn(2, 3, 16, 16)
    (finished,) = whole.forward_intermediates(x, indices=1, norm=True, intermediates_only=True)
    torch.testing.assert_close(finished, whole.forward_features(x))


def test_a_stem_for_large_images():
    options = {"stem": "imagenet", "channels": 8, "cells": 6}
    model = timm.create_model("nas_darts", genotype="darts_v2", **options)
    assert [info["reduction"] for info in model.feature_info] == [8, 16, 32]
    assert resolve_data_config({}, model=model)["input_size"] == (3, 224, 224)
    assert model.num_classes == 1000


def test_a_new_classifier():
    model = model_of("nas_nasbench201")
    model.reset_classifier(7)
    assert model(torch.randn(2, 3, 8, 8)).shape == (2, 7)
    assert model.num_classes == 7
    model.reset_classifier(4, "max")
    x = torch.randn(2, 3, 8, 8)
    pooled = model.eval().forward_features(x).amax(dim=(2, 3))
    torch.testing.assert_close(model(x), model.get_classifier()(pooled))
    model.reset_classifier(0)
    torch.testing.assert_close(model(x), pooled)
    model.reset_classifier(0, "")
    assert model(x).shape == (2, 16, 2, 2)


def test_methods_that_training_scripts_use():
    """The steps of timm's train.py, with the arguments that it gives to the factory."""
    model = timm.create_model(
        "nas_nasbench201",
        pretrained=False,
        in_chans=3,
        num_classes=3,
        drop_rate=0.2,
        drop_path_rate=0.1,
        drop_block_rate=None,
        global_pool=None,
        bn_momentum=None,
        bn_eps=None,
        scriptable=False,
        checkpoint_path="",
        genotype=CELL,
        channels=4,
        cells=1,
    )
    config = resolve_data_config({"num_classes": 3}, model=model)
    assert (config["input_size"], config["crop_pct"]) == ((3, 32, 32), 1.0)
    create_transform(**config, is_training=True)
    model.set_grad_checkpointing(False)
    drops = [module.drop_prob for module in model.modules() if type(module).__name__ == "DropPath"]
    assert set(drops) == {0.1}
    assert model.head_drop.p == 0.2
    optimizer = create_optimizer_v2(model, opt="adamw", lr=0.01, weight_decay=0.05, layer_decay=0.7)
    before, average = copy.deepcopy(model.state_dict()), ModelEmaV3(model, decay=0.5)
    x, y = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 0])
    torch.nn.functional.cross_entropy(model(x), y).backward()
    torch.nn.utils.clip_grad_norm_(model_parameters(model, exclude_head=True), 1.0)
    optimizer.step()
    average.update(model)
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert moved == {name for name, _ in model.named_parameters()}
    assert len(list(model_parameters(model))) - len(model_parameters(model, exclude_head=True)) == 2


@pytest.mark.parametrize("name", MODELS)
def test_layers_are_in_the_order_of_their_depth(name):
    model = model_of(name)
    layers = group_parameters(model, model.group_matcher(), reverse=True)
    assert set(layers) == {key for key, _ in model.named_parameters()}
    depth = {key: layer for key, layer in layers.items() if ".blocks." not in key and "last_norm" not in key}
    ranks = [depth[key] for key, _ in model.named_parameters() if key in depth]
    assert ranks == sorted(ranks)
    assert layers["head.weight"] == max(layers.values())
    assert min(layers.values()) == 0
    coarse = group_parameters(model, model.group_matcher(coarse=True), reverse=True)
    assert max(coarse.values()) <= max(layers.values())


# Genotypes


def test_genotypes_of_all_sources(tmp_path, run):
    sizes = {"channels": 4, "cells": 1}
    genotype = NasBench201().parse(CELL)
    path = write_genotypes(tmp_path / "found" / "genotype.json", [genotype])
    models = [
        timm.create_model("nas_nasbench201", genotype=form, **sizes)
        for form in (CELL, genotype, path, str(path.parent))
    ]
    names = [list(model.state_dict()) for model in models]
    assert names[0] == names[1] == names[2] == names[3]
    published = timm.create_model("nas_nasbench201", genotype="nasbench201_best", **sizes)
    assert list(published.state_dict()) != names[0]


def test_weights_of_a_run(run):
    folder, network = run
    model = timm.create_model("nas_nasbench201", genotype=str(folder), pretrained=True).eval()
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(model(x), network(x))
    config = resolve_data_config({}, model=model)
    assert (config["mean"], config["std"]) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert config["input_size"] == (3, 16, 16)
    fresh = timm.create_model("nas_nasbench201", genotype=folder / "model.safetensors").eval()
    assert not torch.allclose(fresh(x), network(x))
    load_checkpoint(fresh, folder / "model.safetensors")
    torch.testing.assert_close(fresh(x), network(x))
    path = folder / "model.safetensors"
    again = timm.create_model("nas_nasbench201", genotype=str(folder), checkpoint_path=str(path)).eval()
    torch.testing.assert_close(again(x), network(x))


def test_weights_of_a_run_with_other_classes_and_channels(run):
    folder, network = run
    options = {"genotype": str(folder), "pretrained": True}
    other = timm.create_model("nas_nasbench201", num_classes=5, **options).eval()
    x = torch.randn(2, 3, 16, 16)
    features = network.backbone.final(list(network.backbone.cells_outputs(x))[-1])
    torch.testing.assert_close(other.forward_features(x), features)
    assert other(x).shape == (2, 5)
    stages = timm.create_model("nas_nasbench201", features_only=True, **options).eval()
    torch.testing.assert_close(stages(x)[-1], list(network.backbone.cells_outputs(x))[-1])
    gray = timm.create_model("nas_nasbench201", in_chans=1, **options).eval()
    assert gray(x[:, :1]).shape == (2, 3)
    weight = network.backbone.stem[0].weight.sum(dim=1, keepdim=True)  # timm's rule
    torch.testing.assert_close(gray.backbone.stem[0].weight, weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"genotype": "darts_v9"}, "did you mean 'darts_v"),
        ({"genotype": "darts_v2"}, "`darts_v2` must be an architecture of the space"),
        ({"genotype": "|a~0|"}, "must be"),
        ({"genotype": "nowhere.safetensors"}, "The path must be the folder of a run"),
        ({"genotype": CELL, "cells": 0}, "`cells` must be at least 1"),
    ],
)
def test_wrong_genotypes_and_sizes(refusal, options, message):
    assert message in refusal(lambda: timm.create_model("nas_nasbench201", **options))


@pytest.mark.parametrize("unknown", ["auxiliary", "dropout", "bn_momentum"])
def test_unknown_options_raise(unknown):
    with pytest.raises(TypeError, match=unknown):
        timm.create_model("nas_nasbench201", genotype=CELL, channels=4, cells=1, **{unknown: 0.5})
    with pytest.raises(RuntimeError, match="No pretrained weights"):
        timm.create_model("nas_nasbench201", genotype=CELL, channels=4, cells=1, pretrained=True)


# Scripts


SCRIPT = """
import argparse
import timm
import torch
from timm.utils import ParseKwargs
from beside import CLASSES

parser = argparse.ArgumentParser()
parser.add_argument("--model")
parser.add_argument("--model-kwargs", nargs="*", default={}, action=ParseKwargs)
parser.add_argument("--grad-checkpointing", action="store_true")
options = parser.parse_args()
model = timm.create_model(options.model, num_classes=CLASSES, **options.model_kwargs)
if options.grad_checkpointing:
    model.set_grad_checkpointing(enable=True)
if __name__ == "__main__":
    print(tuple(model(torch.zeros(2, 3, 8, 8)).shape))
"""
SCRIPT_CELL = "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|skip_connect~2|"


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", sys.argv[:])
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    (tmp_path / "beside.py").write_text("CLASSES = 5\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    return str(tmp_path / "train.py")


def test_a_script_finds_the_models(script, capsys):
    sizes = ["channels=4", "cells=1"]
    main([script, "--model", "nas_nasbench201", "--model-kwargs", f"genotype={SCRIPT_CELL}", *sizes])
    assert capsys.readouterr().out == "(2, 5)\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Pass an architecture, such as genotype=darts_v2"),
        (["--model-kwargs", "genotype=darts_v3"], "did you mean 'darts_v2'?"),
        (
            ["--model-kwargs", "genotype=darts_v2", "cells=0"],
            "`cells` must be at least 1, got 0",
        ),
        (
            ["--model-kwargs", "genotype=darts_v2", "cells=1", "--grad-checkpointing"],
            "not have gradient checkpoint",
        ),
    ],
)
def test_mistakes_raise_one_line(script, arguments, message):
    with pytest.raises(SystemExit) as end:
        main([script, "--model", "nas_darts", *arguments])
    assert str(end.value).startswith("error: ")
    assert message in str(end.value)


def test_missing_script(tmp_path):
    for arguments in ([], [str(tmp_path / "train.py")]):
        with pytest.raises(
            SystemExit, match=r"error: Pass a script of timm, such as its train\.py, and its arguments"
        ):
            main(arguments)
