"""The kernel of any module, against the gradient of each sample's output in float64."""

import functools
import itertools
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from nas_lightning.errors import InputError
from nas_lightning.metrics import ntk
from nas_lightning.metrics import recording as notices
from nas_lightning.spaces import NasBench201

M, CLASSES = 5, 3
LABELS = torch.tensor([0, 1, 2, 0, 1])
ROWS = "row by row"


@pytest.fixture(autouse=True)
def _said_anew() -> None:
    notices.say_row_by_row.cache_clear()


def oracle(network: nn.Module, x: Tensor, logits=lambda output: output, labels: Tensor = LABELS) -> Tensor:
    """J Jᵀ, one backward pass of the plain network a sample."""
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    rows, outputs = [], logits(network(x))
    for value in outputs.gather(1, labels[:, None])[:, 0]:
        gradients = torch.autograd.grad(value, parameters, retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
    return torch.stack(rows) @ torch.stack(rows).T


class Small(nn.Module):
    """Some layers, and a forward pass of its own."""

    def __init__(self, forward, **layers) -> None:
        super().__init__()
        self.head = nn.Linear(6, CLASSES)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.run = forward

    def forward(self, x: Tensor):
        return self.run(self, x)


def tokens(*shape: int) -> Tensor:
    return torch.randn(M, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def words() -> Tensor:
    return torch.tensor([[0, 1, 2], [3, 1, 1], [2, 2, 0], [4, 0, 1], [1, 3, 4]])


linear = partial(nn.Linear, 6, 6)
table = partial(nn.Embedding, 5, 6)
lstm = partial(nn.LSTM, 6, 6, batch_first=True)


class RMS(nn.Module):
    """A norm that somebody wrote."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(features))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x / (x**2).mean(-1, keepdim=True).sqrt()


BY_LAYERS = {
    "layer norm": lambda: (Small(lambda n, x: n.head(n.norm(x).mean(1)), norm=nn.LayerNorm(6)), tokens(4, 6)),
    "RMS norm": lambda: (Small(lambda n, x: n.head(n.norm(x).mean(1)), norm=nn.RMSNorm(6)), tokens(4, 6)),
    "own norm": lambda: (Small(lambda n, x: n.head(n.norm(x).mean(1)), norm=RMS(6)), tokens(4, 6)),
    "group norm": lambda: (
        Small(lambda n, x: n.head(n.norm(x).tanh().mean((2, 3))), norm=nn.GroupNorm(2, 6)),
        tokens(6, 3, 3),
    ),
    "convolution of one axis": lambda: (
        Small(lambda n, x: n.head(n.conv(x).tanh().mean(2)), conv=nn.Conv1d(2, 6, 3, stride=2)),
        tokens(2, 9),
    ),
    "convolution of three axes": lambda: (
        Small(lambda n, x: n.head(n.conv(x).tanh().mean((2, 3, 4))), conv=nn.Conv3d(2, 6, 2)),
        tokens(2, 3, 3, 3),
    ),
    "transposed convolution": lambda: (
        Small(lambda n, x: n.head(n.conv(x).tanh().mean((2, 3))), conv=nn.ConvTranspose2d(2, 6, 3)),
        tokens(2, 3, 3),
    ),
    "words": lambda: (
        Small(lambda n, x: n.head(n.table(x).tanh().mean(1)), table=table()),
        words(),
    ),
    "words, tied": lambda: (tied(), words()),
    "slopes": lambda: (Small(lambda n, x: n.head(n.act(x)), act=nn.PReLU(6)), tokens(6)),
    "by keyword": lambda: (
        Small(lambda n, x: n.head(input=n.lin(input=x).tanh()), lin=linear()),
        tokens(6),
    ),
    "several times": lambda: (
        Small(lambda n, x: n.head(n.norm(n.norm(x).tanh())), norm=nn.LayerNorm(6)),
        tokens(6),
    ),
    "two axes before the features": lambda: (
        Small(lambda n, x: n.head(n.lin(x).tanh().mean((1, 2))), lin=linear()),
        tokens(2, 3, 6),
    ),
}
BY_ROWS = {
    "class token": (lambda: (Token(), tokens(4, 6)), "token of Token"),
    "attention": (lambda: (attention(), tokens(4, 6)), "MultiheadAttention"),
    "recurrent": (
        lambda: (
            Small(lambda n, x: n.head(n.lstm(x)[0][:, -1]), lstm=lstm()),
            tokens(4, 6),
        ),
        "of LSTM 'lstm'",
    ),
    "a weight past its layer": (
        lambda: (
            Small(lambda n, x: n.head(x + F.linear(n.head(x), n.head.weight.T))),
            tokens(6),
        ),
        "weight of Linear 'head'",
    ),
    "samples in pairs": (
        lambda: (Small(lambda n, x: n.head(x.repeat(2, 1)).unflatten(0, (2, -1)).sum(0)), tokens(6)),
        "Linear 'head' sees 10 samples of 5",
    ),
    "samples on the second axis": (
        lambda: (
            Small(lambda n, x: n.head(n.lin(x.transpose(0, 1)).tanh().mean(0)), lin=linear()),
            tokens(M, 6),
        ),
        "samples are not the first axis in Linear 'lin'",
    ),
    "samples that see each other": (
        lambda: (
            Small(lambda n, x: n.head(n.lin(x).tanh() - n.lin(x).mean(0)), lin=linear()),
            tokens(6),
        ),
        "samples are mixed",
    ),
}


def tied() -> nn.Module:
    """The table of words is the classifier's weight, too."""
    network = Small(
        lambda n, x: n.out(n.table(x).tanh().mean(1)), table=nn.Embedding(5, 6), out=nn.Linear(6, 5)
    )
    network.out.weight = network.table.weight
    return network


class Token(nn.Module):
    """A transformer's beginning: a token of the module's own, and places that are added."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 6)), nn.Parameter(torch.randn(1, 5, 6))
        self.mix, self.head = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.places
        return self.head(torch.tanh(self.mix(x)).mean(1))


def attention() -> nn.Module:
    layers = {"mix": nn.MultiheadAttention(6, 2, batch_first=True)}
    return Small(lambda n, x: n.head(n.mix(x, x, x)[0].mean(1)), **layers)


def same(kernel, expected: Tensor) -> None:
    torch.testing.assert_close(kernel.matrix, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", BY_LAYERS)
def test_layers_of_any_kind(name):
    network, x = BY_LAYERS[name]()
    network = network.double().eval()
    same(ntk(network, (x, LABELS)), oracle(network, x))


@pytest.mark.parametrize("name", BY_ROWS)
def test_what_layers_do_not_account_for_is_said_and_exact(name):
    build, reason = BY_ROWS[name]
    network, x = build()
    network = network.double().eval()
    with pytest.warns(UserWarning, match=ROWS) as caught:
        kernel = ntk(network, (x, LABELS))
    assert reason in str(caught[0].message)
    same(kernel, oracle(network, x))
    ntk(network, (x, LABELS))  # said once
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


@pytest.mark.parametrize("form", ["tuple", "dict", "nested"])
def test_outputs_of_other_forms(form):
    forms = {
        "tuple": lambda z: (z, z.sum()),
        "dict": lambda z: {"loss": z.sum(), "logits": z},
        "nested": lambda z: {"out": (z, None)},
    }
    network = Small(lambda n, x: forms[form](n.head(x))).double()
    plain = network.head
    same(ntk(network, (tokens(6), LABELS)), oracle(plain, tokens(6)))


def test_an_output_without_logits_is_refused():
    network = Small(lambda n, x: SimpleNamespace(logits=n.head(x))).double()
    with pytest.raises(InputError, match=r"expected logits from the network.*SimpleNamespace"):
        ntk(network, (tokens(6), LABELS))


def test_checkpointed_layers():
    layers = {"lin": nn.Linear(6, 6)}
    network = Small(
        lambda n, x: n.head(checkpoint(lambda z: n.lin(z).tanh(), x, use_reentrant=False)), **layers
    )
    same(ntk(network.double(), (tokens(6), LABELS)), oracle(network, tokens(6)))


@pytest.mark.parametrize(
    "compile", [lambda n: torch.compile(n, backend="eager"), lambda n: n.compile(backend="eager") or n]
)
def test_compiled_modules(compile):
    """No gradient reaches the hooks of what is compiled: 0 where there is a kernel."""
    plain = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, CLASSES)).double()
    expected = oracle(plain, tokens(6))
    same(ntk(compile(plain), (tokens(6), LABELS)), expected)


def test_a_gradient_that_does_not_come_is_not_zero():
    class Cut(torch.autograd.Function):
        """Passes its input on, and its gradient past the layer before."""

        @staticmethod
        def forward(ctx, y, w, x):
            ctx.save_for_backward(x)
            return y.clone()

        @staticmethod
        def backward(ctx, g):
            return None, g.T @ ctx.saved_tensors[0], None

    layers = {"lin": nn.Linear(6, 6, bias=False)}
    network = Small(lambda n, x: n.head(Cut.apply(n.lin(x), n.lin.weight, x)), **layers).double()
    with pytest.warns(UserWarning, match=ROWS):
        same(ntk(network, (tokens(6), LABELS)), oracle(network, tokens(6)))


def test_a_call_for_nothing_does_not_stand_for_another_use():
    """The layer is called as often as its weight is used, but not where it is used."""
    layers = {"lin": nn.Linear(6, 6, bias=False)}
    network = Small(lambda n, x: (n.lin(x), n.head(F.linear(x, n.lin.weight)))[1], **layers).double()
    with pytest.warns(UserWarning, match=ROWS) as caught:
        same(ntk(network, (tokens(6), LABELS)), oracle(network, tokens(6)))
    assert "no gradient reached weight of 'lin'" in str(caught[0].message)


def test_a_call_for_nothing_adds_nothing():
    layers = {"lin": nn.Linear(6, 6)}
    network = Small(lambda n, x: (n.lin(2 * x), n.head(n.lin(x).tanh()))[1], **layers).double()
    same(ntk(network, (tokens(6), LABELS)), oracle(network, tokens(6)))


@pytest.mark.parametrize("coupled", [True, False])
def test_a_parameter_that_some_samples_do_not_reach(coupled):
    """Experts: half of the samples go through each."""
    layers = {"one": nn.Linear(6, 6), "other": nn.Linear(6, 6)}
    rows = torch.tensor([0, 1, 1, 0, 1])[:, None]
    network = Small(
        lambda n, x: n.head(torch.stack([z for _, z in sorted(parts(n, x).items())]).tanh()), **layers
    ).double()

    def parts(n: nn.Module, x: Tensor) -> dict[int, Tensor]:
        return {i: (n.one if rows[i] else n.other)(x[i]) for i in range(M)}

    if coupled:
        same(ntk(network, (tokens(6), LABELS), coupled=True), oracle(network, tokens(6)))
    else:
        with pytest.warns(UserWarning, match=ROWS):
            same(ntk(network, (tokens(6), LABELS)), oracle(network, tokens(6)))


def test_what_has_no_gradient_is_zero_and_not_said():
    """In some cells an operation's result is computed, and no gradient comes back to it."""
    space, x = NasBench201(), torch.randn(M, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    names = space.groups["cell"].ops
    cells = [
        f"|{a}~0|+|none~0|{b}~1|+|{c}~0|none~1|none~2|"
        for a, b, c in itertools.product(names, names, ("skip_connect", "nor_conv_3x3"))
    ]
    for cell in cells:
        network = space.network(space.parse(cell), in_channels=1, num_classes=CLASSES, channels=2, cells=1)
        network, images = network.double().eval(), x.double()
        same(ntk(network, (images, LABELS), batch_statistics=False), oracle(network, images))


def test_rows_in_parts(monkeypatch):
    network = attention().double()
    expected = ntk(network, (tokens(4, 6), LABELS), coupled=True).matrix
    monkeypatch.setattr("nas_lightning.metrics.kernel._MOST_ENTRIES", 5 * 50)
    torch.testing.assert_close(ntk(network, (tokens(4, 6), LABELS), coupled=True).matrix, expected)


class NormAct(nn.BatchNorm2d):
    """A norm with its activation, as timm has them."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.act = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(super().forward(x))


def test_a_norm_with_an_activation_is_the_norm_and_the_activation():
    """With the statistics of the batch, whose shares are another kernel than J Jᵀ."""
    fused = nn.Sequential(nn.Conv2d(2, 4, 3), NormAct(4), nn.Flatten(), nn.Linear(16, CLASSES)).double()
    apart = nn.Sequential(fused[0], nn.BatchNorm2d(4), nn.Tanh(), fused[2], fused[3]).double()
    for norm in (fused[1], apart[1]):
        nn.init.uniform_(norm.weight, 0.5, 1.5, generator=torch.Generator().manual_seed(0))
    x = tokens(2, 4, 4)
    torch.testing.assert_close(ntk(fused, (x, LABELS)).matrix, ntk(apart, (x, LABELS)).matrix)
    assert fused[1].training
    assert int(fused[1].num_batches_tracked) == 0


TIMM = [
    *("resnet10t", "resnetv2_50", "nf_regnet_b0", "regnetx_002", "efficientnet_b0", "mobilenetv3_small_050"),
    *("convnext_atto", "convnextv2_atto", "vit_tiny_patch16_224", "deit_tiny_patch16_224", "mixer_s32_224"),
    *("swin_tiny_patch4_window7_224", "densenet121", "ghostnet_050", "repvgg_a0", "mobilevit_xxs"),
    *("poolformer_s12", "edgenext_xx_small", "inception_next_atto", "xcit_nano_12_p16_224"),
]


@functools.cache
def families() -> set[str]:
    import timm

    return set(timm.list_models())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the kernel of .* is computed row by row")
@pytest.mark.parametrize("name", TIMM)
def test_families_of_timm(name):
    """In evaluation mode, where batch norms do not mix samples and J Jᵀ is the one kernel."""
    import timm

    assert name in families()
    size = 224 if "224" in name or "xcit" in name else 64
    network = timm.create_model(name, num_classes=CLASSES).double().eval()
    head = network.get_classifier()
    if isinstance(head, nn.Linear):  # some begin with zeros, whose kernel is that of the head alone
        nn.init.normal_(head.weight, std=0.1)
    x = torch.randn(3, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = ntk(network, (x, LABELS[:3]), batch_statistics=False)
    torch.testing.assert_close(kernel.matrix, oracle(network, x, labels=LABELS[:3]), rtol=1e-6, atol=1e-9)
