"""`mlp` and `two_layer`: equation 1 with plain loops, the supernet against it, notations, refusals."""

import json
import math

import pytest
import torch
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.spaces import Mlp, TwoLayer

TASK = {"in_channels": 2, "num_classes": 3}
BY_HAND = {
    "relu": lambda z: z if z > 0 else 0.0,
    "leaky_relu": lambda z: z if z > 0 else 0.01 * z,
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)) - 0.5,
    "tanh": math.tanh,
    "swish": lambda z: z / (1 + math.exp(-z)),
}


def plainly(network, activations, alphas, x):
    """Equation 1 for one image, number by number; `activations` is a list of {name: weight} a layer."""
    f = x.flatten().tolist()
    for index, mixture in enumerate(activations):
        W = network.backbone.layers[index].linear.weight.tolist()
        z = [sum(w * v for w, v in zip(row, f, strict=True)) for row in W]
        g = [sum(share * BY_HAND[name](v) for name, share in mixture.items()) for v in z]
        alpha = alphas[index - 1] if index else 0.0
        f = [a + alpha * b for a, b in zip(g, f, strict=True)] if alpha else g
    return [sum(w * v for w, v in zip(row, f, strict=True)) for row in network.head.weight.tolist()]


def test_network_is_equation_1(generator):
    space = Mlp(layers=6)
    names, skips = list(BY_HAND), [True, False, True, False]
    genotype = space.of(names, skips)
    network = space.network(genotype, **TASK, width=5, side=2).double()
    x = torch.randn(2, 2, 2, 2, dtype=torch.float64, generator=generator)
    wanted = [plainly(network, [{name: 1.0} for name in names], skips, image) for image in x]
    torch.testing.assert_close(network(x), torch.tensor(wanted, dtype=torch.float64))
    assert network.backbone.decisions == (names, skips)
    assert all(parameter.dim() == 2 for parameter in network.parameters())  # no biases


def test_supernet_mixes_and_a_path_is_the_network(generator):
    space = Mlp(layers=4)
    supernet = space.supernet(**TASK, width=5, side=2).double()
    x = torch.randn(2, 2, 2, 2, dtype=torch.float64, generator=generator)
    weights = {
        name: torch.rand(group.shape, dtype=torch.float64, generator=generator)
        for name, group in space.groups.items()
    }
    mixtures = [dict(zip(space.activations, row, strict=True)) for row in weights["activation"].tolist()]
    wanted = [plainly(supernet, mixtures, weights["skip"][:, 1].tolist(), image) for image in x]
    torch.testing.assert_close(supernet(x, weights), torch.tensor(wanted, dtype=torch.float64))
    for _ in range(5):
        genotype = space.sample(generator)
        network = space.network(genotype, **TASK, width=5, side=2).double()
        network.load_state_dict(supernet.state_dict())
        torch.testing.assert_close(supernet(x, space.one_hot(genotype)), network(x))


def test_two_layers(generator):
    space = TwoLayer(("relu", "tanh"))
    assert list(space.groups) == ["activation"]
    supernet = space.supernet(**TASK, width=5, side=2).double()
    x = torch.randn(3, 2, 2, 2, dtype=torch.float64, generator=generator)
    alpha = torch.tensor([[0.3, 0.7]], dtype=torch.float64)
    z = F.linear(x.flatten(1), supernet.backbone.layers[0].linear.weight)
    wanted = (0.3 * F.relu(z) + 0.7 * torch.tanh(z)) @ supernet.head.weight.T
    torch.testing.assert_close(supernet(x, {"activation": alpha}), wanted)
    assert space.notation(space.discretize({"activation": alpha})) == "tanh"


def test_parametrizations_are_the_same_function_up_to_the_scale_of_the_weights():
    """ReLU without skips: f_ntk = (√(2/m) W_3)(√(2/m) W_2)(W_1/√d) x for weights of variance 1."""
    space = Mlp(layers=4)
    genotype = space.of(["relu"] * 3, [False, False])
    sizes = {**TASK, "width": 64, "side": 2}
    ntk = space.network(genotype, **sizes, parametrization="ntk")
    plain = space.network(genotype, **sizes)
    plain.load_state_dict(ntk.state_dict())
    x = torch.randn(3, 2, 2, 2)
    torch.testing.assert_close(ntk(x), plain(x) / math.sqrt(8) * math.sqrt(2 / 64) ** 3)
    for network, variances in ((ntk, (1, 1, 1)), (space.network(genotype, **sizes), (1 / 8, 1 / 64, 1 / 64))):
        layers = [layer.linear for layer in network.backbone.layers]
        for layer, variance in zip(layers, variances, strict=True):
            assert float(layer.weight.detach().var()) == pytest.approx(
                variance, rel=5 * (2 / layer.weight.numel()) ** 0.5
            )


def test_images_of_other_sizes_are_averaged(generator):
    space = Mlp(layers=3)
    network = space.network(space.sample(generator), **TASK, width=5, side=2)
    x = torch.randn(3, 2, 4, 4)
    halves = x.unflatten(3, (2, 2)).unflatten(2, (2, 2)).mean(dim=(3, 5))
    torch.testing.assert_close(network(x), network(halves))


def test_skips_are_kept_above_one_half():
    space = Mlp(layers=4, activations=("relu", "tanh"))
    scores = {
        "activation": torch.tensor([[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]]),
        "skip": torch.tensor([[0.5, 0.5], [0.49, 0.51]]),
    }
    assert space.notation(space.discretize(scores)) == "relu|tanh|relu+skip"


def test_samples_are_uniform_over_all_architectures(generator):
    space = Mlp(layers=3, activations=("relu", "tanh"))
    drawn = [space.notation(space.sample(generator)) for _ in range(800)]
    counts = {name: drawn.count(name) for name in set(drawn)}
    assert len(counts) == 8
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 24.3  # χ², 7 degrees, p = 0.001


def test_notations():
    for text in ["relu|tanh+skip|swish", " relu | tanh+skip | swish "]:
        space = Mlp(layers=4)
        genotype = space.parse(text)
        assert space.decisions(genotype) == (["relu", "tanh", "swish"], [True, False])
        data = {"activations": ["relu", "tanh", "swish"], "skips": [1, 0]}
        assert space.parse(data) == space.parse(json.dumps(data)) == genotype
        assert len(space.neighbors(genotype)) == 3 * 4 + 2


def test_malformed_texts_are_refused(refusal):
    for text in [
        *(
            "",
            "relu",
            "relu|tanh",
            "relu+skip|tanh|tanh",
            "relu|gelu|tanh",
            "relu|tanh+|tanh",
            "relu|tanh+jump|tanh",
        ),
        *(
            '{"activations": 3}',
            '{"activations": ["relu", "relu", "relu"], "skips": [2, 0]}',
            "{}",
            "{",
            "[1]",
        ),
        '{"activations": ["relu", "relu", "relu"], "skips": [1]}',
    ]:
        assert refusal(Mlp(layers=4).parse, text)


def test_impossible_spaces_and_sizes_are_refused(generator):
    with pytest.raises(InputError, match="`layers` must be at least 3"):
        Mlp(layers=2)
    with pytest.raises(InputError, match="did you mean 'tanh'"):
        TwoLayer(("relu", "tanhh"))
    with pytest.raises(InputError, match="at least two activations"):
        TwoLayer(("relu",))
    space = Mlp(layers=3)
    for sizes in ({"width": 0}, {"side": 0}, {"parametrization": "mup"}):
        with pytest.raises(InputError):
            space.network(space.sample(generator), **TASK, **sizes)
