"""Per-sample gradients of any module, against the gradient of each sample's output in float64."""

import functools
import itertools
import warnings
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from nas_lightning.errors import InputError
from nas_lightning.metrics import ntk
from nas_lightning.metrics import recording as notices
from nas_lightning.spaces import NasBench201

M, CLASSES = 5, 3
LABELS = torch.tensor([0, 1, 2, 0, 1])
ROWS = "row by row"


@pytest.fixture(autouse=True)
def _said_anew() -> None:
    notices.warn_row_by_row.cache_clear()


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
def test_parameters_outside_of_layers_use_rows_with_a_warning(name):
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


def test_output_without_logits_raises():
    network = Small(lambda n, x: SimpleNamespace(logits=n.head(x))).double()
    with pytest.raises(InputError, match=r"The network must return logits, alone, first, or named"):
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


def test_missing_gradient_is_not_zero():
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


def test_unused_call_does_not_cover_another_use():
    """The layer is called as often as its weight is used, but not where it is used."""
    layers = {"lin": nn.Linear(6, 6, bias=False)}
    network = Small(lambda n, x: (n.lin(x), n.head(F.linear(x, n.lin.weight)))[1], **layers).double()
    with pytest.warns(UserWarning, match=ROWS) as caught:
        same(ntk(network, (tokens(6), LABELS)), oracle(network, tokens(6)))
    assert "no gradient reached weight of 'lin'" in str(caught[0].message)


def test_unused_call_adds_nothing():
    layers = {"lin": nn.Linear(6, 6)}
    network = Small(lambda n, x: (n.lin(2 * x), n.head(n.lin(x).tanh()))[1], **layers).double()
    same(ntk(network, (tokens(6), LABELS)), oracle(network, tokens(6)))


@pytest.mark.parametrize("coupled", [True, False])
def test_parameter_unreached_by_some_samples(coupled):
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


def test_parameters_without_gradient_add_zero_without_a_warning():
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


def test_rows_split_by_parameters(monkeypatch):
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


# Families of modules

BY_ROW = pytest.mark.filterwarnings("ignore:the kernel of .* is computed row by row")


class Adapted(nn.Linear):
    """A frozen layer with a trained change of low rank."""

    def __init__(self) -> None:
        super().__init__(6, 6)
        self.weight.requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(2, 6)), nn.Parameter(torch.randn(6, 2))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight + self.b @ self.a, self.bias)


class Spectral(nn.Module):
    """Complex weights on frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, dtype=torch.cdouble))

    def _apply(self, fn, recurse=True):
        return self  # `double` would take the imaginary parts

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=6)


def routed(network: Small, x: Tensor) -> Tensor:
    """Each sample goes through the expert of its first number."""
    out, chosen = torch.zeros_like(x), x[:, 0] > 0
    for expert, rows in zip(network.experts, (chosen, ~chosen), strict=True):
        out[rows] = expert(x[rows])
    return network.head(out)


def unrolled(network: Small, x: Tensor) -> Tensor:
    state = torch.zeros(len(x), 6, dtype=x.dtype)
    for step in x.unbind(1):
        state = network.cell(step, state)
    return network.head(state)


def linear_kernel_families() -> nn.Linear:
    return nn.Linear(6, 6)


def encoder(**options) -> nn.Module:
    layer = nn.TransformerEncoderLayer(6, 2, 12, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def in_line(network: Small, x: Tensor) -> Tensor:
    return network.head(network.lin(x).tanh())


def averaged(network: Small, x: Tensor) -> Tensor:
    return network.head(network.lin(x).tanh().mean(1))


def scripted() -> nn.Module:
    return nn.Sequential(linear_kernel_families(), nn.Tanh(), nn.Linear(6, CLASSES))


MODULES = {
    "encoder": (lambda: Small(averaged, lin=encoder(batch_first=True)), (4, 6)),
    "encoder, norms first": (
        lambda: Small(averaged, lin=encoder(batch_first=True, norm_first=True, activation="gelu")),
        (4, 6),
    ),
    "encoder, samples second": (
        lambda: Small(lambda n, x: n.head(n.lin(x.transpose(0, 1)).mean(0)), lin=encoder()),
        (4, 6),
    ),
    "encoder and decoder": (
        lambda: Small(
            lambda n, x: n.head(n.both(x, x).mean(1)), both=nn.Transformer(6, 2, 1, 1, 12, batch_first=True)
        ),
        (4, 6),
    ),
    **{
        f"{kind.__name__}, two ways": (
            lambda kind=kind: Small(
                lambda n, x: n.last(n.net(x)[0][:, -1]),
                net=kind(6, 6, 2, batch_first=True, bidirectional=True),
                last=nn.Linear(12, CLASSES),
            ),
            (4, 6),
        )
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
    },
    "cell": (lambda: Small(unrolled, cell=nn.GRUCell(6, 6)), (4, 6)),
    "weight norm": (lambda: Small(in_line, lin=parametrizations.weight_norm(linear_kernel_families())), (6,)),
    "spectral norm": (
        lambda: Small(in_line, lin=parametrizations.spectral_norm(linear_kernel_families())),
        (6,),
    ),
    "orthogonal": (lambda: Small(in_line, lin=parametrizations.orthogonal(linear_kernel_families())), (6,)),
    "adapter": (lambda: Small(averaged, lin=Adapted()), (4, 6)),
    "bilinear": (lambda: Small(lambda n, x: n.head(n.lin(x, x.tanh())), lin=nn.Bilinear(6, 6, 6)), (6,)),
    "keys and values": (
        lambda: Small(
            lambda n, x: n.head(n.mix(n.query.expand(len(x), -1, -1), x, x)[0][:, 0]),
            mix=nn.MultiheadAttention(6, 2, batch_first=True, kdim=6, vdim=6, add_bias_kv=True),
            query=nn.Parameter(torch.randn(1, 1, 6)),
        ),
        (4, 6),
    ),
    "frozen": (
        lambda: Small(
            lambda n, x: n.head(n.lin(n.first(x)).tanh()),
            first=linear_kernel_families().requires_grad_(False),
            lin=linear_kernel_families(),
        ),
        (6,),
    ),
    "batch norm, evaluated": (
        lambda: Small(
            lambda n, x: n.head(n.norm(n.lin(x)).tanh()), lin=linear_kernel_families(), norm=nn.BatchNorm1d(6)
        ),
        (6,),
    ),
    "instance norm": (
        lambda: Small(lambda n, x: n.head(n.norm(x).tanh().mean(2)), norm=nn.InstanceNorm1d(6, affine=True)),
        (6, 5),
    ),
    "checkpoint": (
        lambda: Small(
            lambda n, x: n.head(checkpoint_sequential(n.lin, 2, x, use_reentrant=False)),
            lin=nn.Sequential(linear_kernel_families(), nn.Tanh(), linear_kernel_families(), nn.Tanh()),
        ),
        (6,),
    ),
    "experts": (
        lambda: Small(routed, experts=nn.ModuleList([linear_kernel_families(), linear_kernel_families()])),
        (6,),
    ),
    "one by one": (lambda: Small(lambda n, x: torch.stack([n.head(sample) for sample in x])), (6,)),
    "a little mixed": (
        lambda: Small(lambda n, x: n.head(n.lin(x) + 1e-3 * n.lin(x).mean(0)), lin=linear_kernel_families()),
        (6,),
    ),
    "padded convolution": (
        lambda: Small(
            lambda n, x: n.head(n.conv(x).tanh().mean((2, 3))),
            conv=nn.Conv2d(2, 6, 3, padding=1, padding_mode="circular"),
        ),
        (2, 5, 5),
    ),
    "traced by fx": (lambda: torch.fx.symbolic_trace(scripted()), (6,)),
    "in parallel": (lambda: nn.DataParallel(scripted()), (6,)),
}
OF_WORDS = {
    "sum": lambda: Small(lambda n, x: n.head(n.bag(x)), bag=nn.EmbeddingBag(5, 6, mode="sum")),
    "max": lambda: Small(lambda n, x: n.head(n.bag(x)), bag=nn.EmbeddingBag(5, 6, mode="max")),
    "padded": lambda: Small(averaged, lin=nn.Embedding(5, 6, padding_idx=1)),
    "of bounded norm": lambda: Small(averaged, lin=nn.Embedding(5, 6, max_norm=0.5)),
    "by frequency": lambda: Small(averaged, lin=nn.Embedding(5, 6, scale_grad_by_freq=True)),
}


@BY_ROW
@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    build, shape = MODULES[name]
    torch.manual_seed(0)
    network, x = build().double().eval(), tokens(*shape)
    same(ntk(network, (x, LABELS), batch_statistics=False), oracle(network, x))


@BY_ROW
@pytest.mark.parametrize("name", OF_WORDS)
def test_modules_of_tokens(name):
    torch.manual_seed(0)
    network = OF_WORDS[name]().double().eval()
    same(ntk(network, (words(), LABELS)), oracle(network, words()))


@BY_ROW
def test_complex_weights():
    """Real and imaginary parts are parameters of their own."""
    network, x = Small(in_line, lin=Spectral()).double(), tokens(6)
    rows = []
    for sample, label in zip(x, LABELS, strict=True):
        gradients = torch.autograd.grad(network(sample[None])[0, label], list(network.parameters()))
        parts = [torch.view_as_real(g) if g.is_complex() else g for g in gradients]
        rows.append(torch.cat([part.flatten() for part in parts]))
    expected = torch.stack(rows) @ torch.stack(rows).T
    for coupled in (False, True):
        same(ntk(network, (x, LABELS), coupled=coupled), expected)


@BY_ROW
@pytest.mark.filterwarnings("ignore:.torch.jit.*:FutureWarning", "ignore:.torch.jit.*:DeprecationWarning")
def test_scripts():
    network = scripted().double()
    compiled = torch.jit.script(network)
    same(ntk(compiled, (tokens(6), LABELS)), oracle(network, tokens(6)))


@BY_ROW
def test_slightly_mixed_samples_warn():
    notices.warn_row_by_row.cache_clear()
    build, shape = MODULES["a little mixed"]
    with pytest.warns(UserWarning, match="samples are mixed"):
        ntk(build().double(), (tokens(*shape), LABELS))


@BY_ROW
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_reentrant_checkpoints_raise():
    network = Small(
        lambda n, x: n.head(checkpoint(n.lin, x, use_reentrant=True)), lin=linear_kernel_families()
    ).double()
    with pytest.raises(InputError, match="Checkpointing must have use_reentrant=False, to compute gradients"):
        ntk(network, (tokens(6), LABELS))


@BY_ROW
@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 0.02), (torch.float16, 0.003)])
def test_half_precision(dtype, most):
    """As near as their digits allow: 8 and 11 bits."""
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, CLASSES)
    network, x = nn.Sequential(*layers), tokens(2, 5, 5).float()
    expected = ntk(network, (x, LABELS)).matrix
    kernel = ntk(network.to(dtype), (x.to(dtype), LABELS)).matrix
    assert float((kernel - expected).abs().max() / expected.abs().max()) < most


TORCHVISION = {
    **dict.fromkeys(("mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5", "efficientnet_b0"), 32),
    **dict.fromkeys(("swin_t", "convnext_tiny", "regnet_y_400mf", "shufflenet_v2_x0_5", "densenet121"), 32),
    **{"squeezenet1_1": 64, "googlenet": 64},
}


MORE_OF_TIMM = {
    **dict.fromkeys(("test_byobnet", "test_coatnet", "test_convnext2", "test_efficientnet_evos"), 160),
    **dict.fromkeys(
        ("test_efficientnet_gn", "test_mambaout", "test_maxvit", "test_nfnet", "test_resnet"), 160
    ),
    **dict.fromkeys(("test_vit", "test_vit3", "test_vit_relpos"), 160),
    **dict.fromkeys(("gernet_s", "rexnet_100", "lcnet_050"), 32),
    **{"levit_128s": 224, "tiny_vit_5m_224": 64},  # which keep their biases while they are evaluated
}


def in_double(network: nn.Module, side: int) -> None:
    """In evaluation mode, where batch norms do not mix samples and J Jᵀ is the one kernel."""
    network = network.double().eval()
    for layer in [module for module in network.modules() if isinstance(module, nn.Linear)][-1:]:
        nn.init.normal_(layer.weight, std=0.1)  # some begin with zeros
    x = torch.randn(3, 3, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = ntk(network, (x, LABELS[:3]), batch_statistics=False)
    torch.testing.assert_close(kernel.matrix, oracle(network, x, labels=LABELS[:3]), rtol=1e-6, atol=1e-9)


@BY_ROW
@pytest.mark.slow
@pytest.mark.parametrize("name", TORCHVISION)
def test_families_of_torchvision(name):
    models = pytest.importorskip("torchvision.models")
    quick = {"init_weights": False} if name == "googlenet" else {}
    torch.manual_seed(0)
    in_double(models.get_model(name, num_classes=CLASSES, **quick), TORCHVISION[name])


@BY_ROW
def test_small_transformers_of_torchvision():
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    in_double(models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=CLASSES), 32)
    sizes = {"stem_channels": 8, "partition_size": 2, "block_channels": [8, 16], "block_layers": [1, 1]}
    in_double(
        models.MaxVit((32, 32), head_dim=4, stochastic_depth_prob=0.1, num_classes=CLASSES, **sizes), 32
    )


@BY_ROW
@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_OF_TIMM)
def test_more_families_of_timm(name):
    import timm

    assert name in families()
    torch.manual_seed(0)
    in_double(timm.create_model(name, num_classes=CLASSES), MORE_OF_TIMM[name])


# Layers that depend on more than their input


class Scale(nn.Module):
    """What it computes depends on an argument, and on an attribute that others set."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.shift = nn.Parameter(torch.rand(6)), 0.0

    def forward(self, x: Tensor, scale: float = 1.0, others: tuple[Tensor, ...] = ()) -> Tensor:
        return (self.weight * x * scale + self.shift + sum(others)).tanh()


class Wants(Scale):
    """Without its argument it cannot be called."""

    def forward(self, x: Tensor, scale: float) -> Tensor:
        return super().forward(x, scale)


class Shift(Scale):
    """Its gradient knows its output alone, so that its input may be changed afterwards."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.weight).tanh()


class Noise(Scale):
    """It draws numbers, also where nothing is trained."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight * torch.randn_like(x)


class Kept(nn.Module):
    """Attention's biases, which are looked up once where nothing is trained, as LeViT has them."""

    def __init__(self) -> None:
        super().__init__()
        self.biases, self.kept = nn.Parameter(torch.randn(3)), None
        self.head = nn.Linear(6, CLASSES)
        self.register_buffer("places", torch.tensor([0, 1, 2, 2, 1, 0]))

    def train(self, mode: bool = True) -> nn.Module:
        self.kept = None if mode else self.kept
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = self.biases[self.places]
        return self.head((x * self.kept).tanh())


class Generated(nn.Module):
    """The weights of a layer are made by another."""

    def __init__(self) -> None:
        super().__init__()
        self.make, self.body, self.head = nn.Linear(2, 36), nn.Linear(6, 6, bias=False), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.make(torch.ones(2, dtype=x.dtype)).view(6, 6)
        return self.head(functional_call(self.body, {"weight": weight}, x).tanh())


def hooked(make) -> nn.Module:
    network = Small(lambda n, x: n.head(n.layer(x).tanh()), layer=linear())
    make(network.layer)
    return network


def conditioned(network: Small, x: Tensor) -> Tensor:
    network.layer.shift = x.sum(1, keepdim=True)
    y = network.layer(x)
    network.layer.shift = 0.0
    return network.head(y)


def changed_afterwards(network: Small, x: Tensor) -> Tensor:
    x = x.clone()
    y = network.layer(x)
    return network.head(y + x.mul_(3))


def in_vain_and_outside(network: Small, x: Tensor) -> Tensor:
    network.layer(2 * x)
    return network.head(network.layer(x).tanh() + F.linear(x, network.layer.weight))


def set_forward(layer: nn.Linear) -> None:
    layer.forward = lambda x: F.linear(x, 3 * layer.weight, layer.bias)


HOOKED_BY_LAYERS = {
    "an output that a hook changes": lambda: hooked(
        lambda layer: layer.register_forward_hook(lambda _, given, output: 2 * output)
    ),
    "an input that a hook changes": lambda: hooked(
        lambda layer: layer.register_forward_pre_hook(lambda _, given: (2 * given[0],))
    ),
    "a forward pass of the instance": lambda: hooked(set_forward),
    "weights by a hook": lambda: hooked(
        lambda layer: nn.utils.prune.random_unstructured(layer, "weight", 0.4)
    ),
}
HOOKED_BY_ROWS = {
    "another argument": lambda: Small(lambda n, x: n.head(n.layer(x, 2.5)), layer=Scale()),
    "an argument that has to be": lambda: Small(lambda n, x: n.head(n.layer(x, 2.5)), layer=Wants()),
    "one by keyword": lambda: Small(lambda n, x: n.head(n.layer(x, scale=2.5)), layer=Scale()),
    "a list": lambda: Small(lambda n, x: n.head(n.layer(x, others=[x])), layer=Scale()),
    "an attribute": lambda: Small(conditioned, layer=Scale()),
    "an input that is changed afterwards": lambda: Small(changed_afterwards, layer=Shift()),
    "a call in vain, a weight outside": lambda: Small(in_vain_and_outside, layer=nn.Linear(6, 6, bias=False)),
    "samples one by one": lambda: Small(
        lambda n, x: vmap(lambda one: n.head(n.layer(one)))(x), layer=linear()
    ),
    "weights that are made": Generated,
    "kept in evaluation": Kept,
    "one number of samples": lambda: Small(lambda n, x: n.head(n.layer(x.view(5, 6))), layer=linear()),
    "samples that a softmax joins": lambda: Small(
        lambda n, x: n.head(n.layer(x) - n.layer(x).mean(0)).softmax(1), layer=linear()
    ),
}


@pytest.mark.parametrize("name", HOOKED_BY_LAYERS)
def test_hooks_of_others_are_covered(name):
    torch.manual_seed(0)
    network = HOOKED_BY_LAYERS[name]().double().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(ntk(network, (tokens(6), LABELS)), oracle(network, tokens(6)))


@pytest.mark.parametrize("name", HOOKED_BY_ROWS)
def test_layers_that_depend_on_more_than_their_input_use_rows(name):
    torch.manual_seed(0)
    network = HOOKED_BY_ROWS[name]().double().eval()
    with pytest.warns(UserWarning, match="row by row"):
        kernel = ntk(network, (tokens(6), LABELS))
    same(kernel, oracle(network, tokens(6)))


def test_random_numbers_of_a_layer_are_those_of_the_forward_pass():
    network, x = Small(lambda n, x: n.head(n.layer(x)), layer=Noise()).double().eval(), tokens(6)
    torch.manual_seed(3)
    with pytest.warns(UserWarning, match="Noise gives another output for the same input"):
        kernel = ntk(network, (x, LABELS))
    torch.manual_seed(3)
    logits = network(x)
    rows = [
        torch.cat(
            [g.flatten() for g in torch.autograd.grad(value, [*network.parameters()], retain_graph=True)]
        )
        for value in logits.gather(1, LABELS[:, None])[:, 0]
    ]
    same(kernel, torch.stack(rows) @ torch.stack(rows).T)


def test_caches_of_evaluation_mode_are_recomputed():
    """Also where it was looked up without gradients before; and it is not kept afterwards."""
    network, x = Kept().double().eval(), tokens(6)
    expected = oracle(network, x)
    network.train().eval()
    with torch.no_grad():
        network(x)
    with pytest.warns(UserWarning, match="row by row"):
        same(ntk(network, (x, LABELS)), expected)
    assert not network.training
    network(x).sum().backward()
    assert bool(network.biases.grad.any())


@pytest.mark.parametrize(
    "forward",
    [
        lambda n, x: n.head((n.layer(x) - 3 * n.layer(x).mean(0)).mean(1)),
        lambda n, x: n.head(n.layer(x.transpose(0, 1)).tanh().mean(0)),
    ],
    ids=["mixed", "on the second axis"],
)
def test_mixing_is_detected_with_two_samples(forward):
    torch.manual_seed(0)
    network, x, labels = Small(forward, layer=linear()).double(), tokens(2, 6)[:2], LABELS[:2]
    with pytest.warns(UserWarning, match="row by row"):
        same(ntk(network, (x, labels)), oracle(network, x, labels=labels))


def test_slightly_mixed_tokens_are_detected():
    forward = lambda n, x: n.head(n.table(x).tanh().mean(1) + 1e-3 * n.table(x).mean((0, 1)))  # noqa: E731
    network = Small(forward, table=table()).double()
    with pytest.warns(UserWarning, match="samples are mixed"):
        same(ntk(network, (words(), LABELS)), oracle(network, words()))


@pytest.mark.parametrize("coupled", [False, True])
def test_sparse_gradients(coupled):
    network = Small(lambda n, x: n.head(n.table(x).tanh().mean(1)), table=table()).double()
    expected = oracle(network, words())
    network.table.sparse = True
    same(ntk(network, (words(), LABELS), coupled=coupled), expected)


def test_lazy_layers_raise():
    with pytest.raises(InputError, match="Lazy layers have no shapes yet"):
        ntk(nn.LazyLinear(CLASSES), (tokens(6), LABELS))
