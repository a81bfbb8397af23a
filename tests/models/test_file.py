"""Model files: the same bits come back, without Hydra and Lightning, and other files are refused."""

import json
import re
import struct
import sys

import pytest
import torch
from safetensors.torch import save_file

import nas_lightning
from nas_lightning.models.file import FILE_NAME, check_same, describe, load, save, take_weights_over
from nas_lightning.spaces import DartsNasi, DartsSpace, NasBench1Shot1, NasBench101, NasBench201

OPS = ["none", "skip_connect", "sep_conv_3x3"]
SPACES = {
    "darts": (DartsSpace(), {}),
    "darts of three nodes": (DartsSpace(nodes=3), {"nodes": 3}),
    "darts of two operations": (DartsSpace(ops=OPS), {"ops": OPS}),
    "darts_nasi": (DartsNasi(), {}),
    "nasbench201": (NasBench201(), {}),
    "nasbench101": (NasBench101(), {}),
    "nasbench1shot1": (NasBench1Shot1(variant=2), {"variant": 2}),
}
SIZES = {"channels": 8, "cells": 1}
CLASSES = ("cat", "dog", "owl")
MEAN, STD = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)


def make(space, seed=0, classes=CLASSES, image=(3, 9, 9), **sizes):
    """A genotype, and its network with batch norms that have seen images."""
    genotype = space.sample(torch.Generator().manual_seed(seed))
    size = {**SIZES, **sizes}
    network = space.network(genotype, in_channels=image[0], num_classes=len(classes), **size)
    network(torch.randn(4, *image))
    return genotype, network.eval()


def stored(folder, space, name=FILE_NAME, **options):
    genotype, network = make(space, **options)
    size = {**SIZES, **{key: value for key, value in options.items() if key == "auxiliary"}}
    known = {"image": options.get("image", (3, 9, 9)), "classes": options.get("classes", CLASSES)}
    scale = {"mean": MEAN, "std": STD} if known["image"][0] == 3 else {}
    return network, save(network, folder / name, space, genotype, size, **known, **scale)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("auxiliary", [False, True])
def test_loaded_network_is_bitwise_equal(tmp_path, name, auxiliary):
    space, settings = SPACES[name]
    network, path = stored(tmp_path, space, auxiliary=auxiliary)
    random = torch.get_rng_state()
    again = nas_lightning.load(tmp_path)
    assert torch.equal(torch.get_rng_state(), random)
    expected = {k: v for k, v in network.state_dict().items() if not k.startswith("auxiliary")}
    state = again.state_dict()
    assert list(state) == list(expected)
    assert all(torch.equal(state[key], value) for key, value in expected.items())
    x = torch.randn(2, 3, 9, 9)
    assert torch.equal(again(x), network(x))
    assert not any(module.training for module in again.modules())
    assert all(parameter.requires_grad for parameter in again.parameters())
    again.train().set_drop_path(0.5)  # it can be trained on
    again(x).sum().backward()
    known = describe(path)
    assert (known.image, known.classes, known.mean, known.std) == ((3, 9, 9), CLASSES, MEAN, STD)
    assert known.genotype == make(space)[0]
    assert (known.space, known.settings) == (space.name, settings)
    assert known.make_space().settings == space.settings


def test_precision_is_kept(tmp_path):
    genotype, network = make(NasBench201())
    network.double()
    save(network, tmp_path / "a", NasBench201(), genotype, SIZES, image=(3, 9, 9), classes=CLASSES)
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    assert torch.equal(load(tmp_path / "a")(x), network(x))


def test_normalization_is_that_of_training(tmp_path):
    from nas_lightning.data.augment import normalize

    network, _ = stored(tmp_path, NasBench201())
    x = torch.randint(256, (2, 3, 9, 9), dtype=torch.uint8)
    found = load(tmp_path, with_normalization=True)(x / 255)
    torch.testing.assert_close(found, network(normalize(x, MEAN, STD)), rtol=1e-5, atol=1e-5)


def test_unknown_attribute_raises():
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        _ = nas_lightning.laod


# Networks that do not fit their description


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"sizes": {"channels": 4, "cells": 1}},
            "0.weight must have shape .4, 3, 3, 3., got .8, 3, 3, 3.",
        ),
        ({"sizes": {"channels": 8, "cells": 2}}, "must have shape .*, got .nothing."),
        ({"classes": ("cat", "dog")}, "head.weight must have shape .2, 32., got .3, 32."),
        ({"image": (1, 9, 9)}, "backbone.stem.0.weight must have shape .8, 1, 3, 3., got .8, 3, 3, 3."),
        (
            {"image": (1, 9, 9), "mean": MEAN},
            "a value for each of 1 channels, got '.0.1, 0.2, 0.3., ",
        ),
        ({"sizes": {**SIZES, "norm": object()}}, "representable in JSON"),
    ],
)
def test_unreadable_files_are_not_written(tmp_path, refusal, changes, message):
    genotype, network = make(NasBench201())
    options = {"sizes": SIZES, "image": (3, 9, 9), "classes": CLASSES, **changes}
    found = refusal(lambda: save(network, tmp_path / "a", NasBench201(), genotype, **options))
    assert re.search(message, found or "nothing"), found
    assert not list(tmp_path.iterdir())


def test_weights_that_the_network_lacks_are_named(refusal):
    assert "a must not exist, got (2,)" in refusal(check_same, {}, {"a": torch.zeros(2)})


# Files that are none


def header_of(path, change):
    """The file with another header."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"]["nas_lightning"] = change(header["__metadata__"]["nas_lightning"])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def with_fields(**fields):
    return lambda text: json.dumps({**json.loads(text), **fields})


def named(name, **settings):
    return {"name": name, "settings": settings}


SPOILT = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "truncated in its header": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("a text"),
    "a checkpoint": lambda path: torch.save({"state_dict": {}}, path),
    "of others": lambda path: save_file({"head.weight": torch.ones(2)}, path),
    "of others with metadata": lambda path: save_file({"a": torch.ones(2)}, path, {"format": "pt"}),
    "gone": lambda path: path.unlink(),
    "no JSON": lambda path: header_of(path, lambda text: text[:-5]),
    "a list": lambda path: header_of(path, lambda text: "[1]"),
    "another format": lambda path: header_of(path, with_fields(format=99)),
    "no genotype": lambda path: header_of(path, with_fields(genotype=None)),
    "no image": lambda path: header_of(path, with_fields(image=None)),
    "no space": lambda path: header_of(path, with_fields(space={})),
    "a space without settings": lambda path: header_of(path, with_fields(space={"name": "nasbench201"})),
    "an unknown space": lambda path: header_of(path, with_fields(space=named("nowhere"))),
    "a function for a space": lambda path: header_of(path, with_fields(space=named("os.system"))),
    "a class for a space": lambda path: header_of(path, with_fields(space=named("nas_lightning.spaces.Mlp"))),
    "unknown settings": lambda path: header_of(path, with_fields(space=named("nasbench201", nodes=3))),
    "settings of a kind": lambda path: header_of(path, with_fields(space=named("darts", nodes="three"))),
    "other sizes": lambda path: header_of(path, with_fields(sizes={"channels": 4, "cells": 1})),
    "impossible sizes": lambda path: header_of(path, with_fields(sizes={"channels": 8, "cells": 0})),
    "unknown sizes": lambda path: header_of(path, with_fields(sizes={"height": 4})),
}


def test_damaged_files_raise_one_line(tmp_path, refusal):
    _, path = stored(tmp_path, NasBench201())
    assert refusal(load, path) is None
    whole = path.read_bytes()
    for name, damage in SPOILT.items():
        path.write_bytes(whole)
        damage(path)
        assert refusal(load, path) is not None, name
        assert refusal(load, tmp_path) is not None, name


def test_files_import_nothing(tmp_path, refusal):
    _, path = stored(tmp_path, NasBench201())
    (tmp_path / "trap_of_a_file.py").write_text("raise SystemExit('imported')")
    sys.path.insert(0, str(tmp_path))
    try:
        header_of(path, with_fields(space=named("trap_of_a_file.Space")))
        assert "space" in refusal(load, path)
        ops = ["none", "trap_of_a_file.Op"]
        header_of(path, with_fields(format=2, space=named("nasbench201", ops=ops)))
        assert "Unknown operation; pass custom operations as operations=[…]" in refusal(load, path)
        header_of(path, with_fields(space=named("nasbench201", ops=["none", "os.system"])))
        assert "Unknown operation; pass custom operations as operations=[…]" in refusal(load, path)
    finally:
        sys.path.remove(str(tmp_path))


# A space of one's own


class Deeper(DartsSpace):
    """Cells as DARTS', under another name and with a setting that no cell shows."""

    name = "deeper"

    def __init__(self, nodes=1, twice=False):
        super().__init__(nodes)
        self.twice = twice

    def network(self, genotype, *, cells=1, **sizes):
        return super().network(genotype, cells=cells * (1 + self.twice), **sizes)


def test_custom_space_is_passed_to_load(tmp_path, refusal):
    network, path = stored(tmp_path, Deeper(twice=True))
    assert "space" in refusal(load, path)
    assert "The space must be 'deeper', got 'darts'" in refusal(lambda: load(path, space=DartsSpace))
    x = torch.randn(2, 3, 9, 9)
    assert torch.equal(load(path, space=Deeper)(x), network(x))


def test_custom_space_is_found_in_a_config_folder(tmp_path, refusal):
    network, path = stored(tmp_path, Deeper(twice=True))
    (tmp_path / "conf" / "space").mkdir(parents=True)
    yaml = f"space:\n  _target_: {Deeper.__module__}.Deeper\n  twice: false\n"
    (tmp_path / "conf" / "space" / "mine.yaml").write_text(yaml)
    x = torch.randn(2, 3, 9, 9)
    assert torch.equal(load(path, folders=[tmp_path / "conf"])(x), network(x))


def test_settings_that_no_cell_shows_are_compared(refusal):
    genotype = Deeper(twice=True).sample(torch.Generator().manual_seed(0))
    assert refusal(Deeper(twice=True).check, genotype) is None
    assert "must have twice=default, got True" in refusal(Deeper().check, genotype)


# Training on


def test_the_same_classes_inherit_everything(tmp_path):
    network, path = stored(tmp_path, NasBench201(), auxiliary=True)
    _, other = make(NasBench201())
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    assert take_weights_over(other, path, CLASSES)
    x = torch.randn(2, 3, 9, 9)
    assert torch.equal(other(x), network(x))


@pytest.mark.parametrize("classes", [("cat", "dog"), ("owl", "dog", "cat")])
def test_other_classes_have_a_new_classifier(tmp_path, classes):
    network, path = stored(tmp_path, NasBench201())
    _, other = make(NasBench201(), classes=classes, auxiliary=True)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    assert not take_weights_over(other, path, classes)
    for name, value in other.state_dict().items():
        own = name.startswith(("head", "auxiliary"))
        assert torch.equal(value, before[name] if own else network.state_dict()[name]), name


@pytest.mark.parametrize("different", [{"channels": 4}, {"cells": 2}, {"seed": 1}, {"image": (1, 9, 9)}])
def test_another_network_inherits_nothing(tmp_path, refusal, different):
    _, path = stored(tmp_path, NasBench201())
    _, other = make(NasBench201(), **different)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    assert "The network must be the same" in refusal(take_weights_over, other, path, CLASSES)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
