"""The kernel of families of modules, against the gradient of each sample's output in float64."""

import functools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from nas_lightning.errors import InputError
from nas_lightning.metrics import ntk
from nas_lightning.metrics import recording as notices
from tests.metrics.test_kernel_any import CLASSES, LABELS, Small, oracle, same, tokens, words

pytestmark = [pytest.mark.filterwarnings("ignore:the kernel of .* is computed row by row")]


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


def linear() -> nn.Linear:
    return nn.Linear(6, 6)


def encoder(**options) -> nn.Module:
    layer = nn.TransformerEncoderLayer(6, 2, 12, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def in_line(network: Small, x: Tensor) -> Tensor:
    return network.head(network.lin(x).tanh())


def averaged(network: Small, x: Tensor) -> Tensor:
    return network.head(network.lin(x).tanh().mean(1))


def scripted() -> nn.Module:
    return nn.Sequential(linear(), nn.Tanh(), nn.Linear(6, CLASSES))


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
    "weight norm": (lambda: Small(in_line, lin=parametrizations.weight_norm(linear())), (6,)),
    "spectral norm": (lambda: Small(in_line, lin=parametrizations.spectral_norm(linear())), (6,)),
    "orthogonal": (lambda: Small(in_line, lin=parametrizations.orthogonal(linear())), (6,)),
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
            lambda n, x: n.head(n.lin(n.first(x)).tanh()), first=linear().requires_grad_(False), lin=linear()
        ),
        (6,),
    ),
    "batch norm, evaluated": (
        lambda: Small(lambda n, x: n.head(n.norm(n.lin(x)).tanh()), lin=linear(), norm=nn.BatchNorm1d(6)),
        (6,),
    ),
    "instance norm": (
        lambda: Small(lambda n, x: n.head(n.norm(x).tanh().mean(2)), norm=nn.InstanceNorm1d(6, affine=True)),
        (6, 5),
    ),
    "checkpoint": (
        lambda: Small(
            lambda n, x: n.head(checkpoint_sequential(n.lin, 2, x, use_reentrant=False)),
            lin=nn.Sequential(linear(), nn.Tanh(), linear(), nn.Tanh()),
        ),
        (6,),
    ),
    "experts": (lambda: Small(routed, experts=nn.ModuleList([linear(), linear()])), (6,)),
    "one by one": (lambda: Small(lambda n, x: torch.stack([n.head(sample) for sample in x])), (6,)),
    "a little mixed": (
        lambda: Small(lambda n, x: n.head(n.lin(x) + 1e-3 * n.lin(x).mean(0)), lin=linear()),
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


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    build, shape = MODULES[name]
    torch.manual_seed(0)
    network, x = build().double().eval(), tokens(*shape)
    same(ntk(network, (x, LABELS), batch_statistics=False), oracle(network, x))


@pytest.mark.parametrize("name", OF_WORDS)
def test_modules_of_words(name):
    torch.manual_seed(0)
    network = OF_WORDS[name]().double().eval()
    same(ntk(network, (words(), LABELS)), oracle(network, words()))


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


@pytest.mark.filterwarnings("ignore:.torch.jit.*:FutureWarning", "ignore:.torch.jit.*:DeprecationWarning")
def test_scripts():
    network = scripted().double()
    compiled = torch.jit.script(network)
    same(ntk(compiled, (tokens(6), LABELS)), oracle(network, tokens(6)))


def test_what_is_mixed_a_little_is_said():
    notices.say_row_by_row.cache_clear()
    build, shape = MODULES["a little mixed"]
    with pytest.warns(UserWarning, match="samples are mixed"):
        ntk(build().double(), (tokens(*shape), LABELS))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_checkpoints_that_give_no_gradients_are_refused():
    network = Small(lambda n, x: n.head(checkpoint(n.lin, x, use_reentrant=True)), lin=linear()).double()
    with pytest.raises(InputError, match="expected checkpointing with use_reentrant=False"):
        ntk(network, (tokens(6), LABELS))


@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 0.02), (torch.float16, 0.003)])
def test_numbers_of_two_bytes(dtype, most):
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


@functools.cache
def families() -> set[str]:
    import timm

    return set(timm.list_models())


TIMM = {
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


@pytest.mark.slow
@pytest.mark.parametrize("name", TORCHVISION)
def test_families_of_torchvision(name):
    models = pytest.importorskip("torchvision.models")
    quick = {"init_weights": False} if name == "googlenet" else {}
    torch.manual_seed(0)
    in_double(models.get_model(name, num_classes=CLASSES, **quick), TORCHVISION[name])


def test_small_transformers_of_torchvision():
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    in_double(models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=CLASSES), 32)
    sizes = {"stem_channels": 8, "partition_size": 2, "block_channels": [8, 16], "block_layers": [1, 1]}
    in_double(
        models.MaxVit((32, 32), head_dim=4, stochastic_depth_prob=0.1, num_classes=CLASSES, **sizes), 32
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMM)
def test_more_families_of_timm(name):
    import timm

    assert name in families()
    torch.manual_seed(0)
    in_double(timm.create_model(name, num_classes=CLASSES), TIMM[name])
