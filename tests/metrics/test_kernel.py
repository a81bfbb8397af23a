"""The kernel against `torch.func`, per-sample parameters, closed forms and a theorem."""

import dataclasses
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas_lightning.errors import InputError
from nas_lightning.metrics import Kernel, NTKCondition, NTKMeanDiagonal, NTKSqrtMeanDiagonal, ntk, score
from nas_lightning.metrics import kernel as products
from nas_lightning.metrics import kernel as sums
from nas_lightning.metrics import layers as rules
from nas_lightning.metrics.engine import Passes, kernel_diagonal
from nas_lightning.metrics.gradients import SampleGradNorm
from nas_lightning.metrics.kernel import _MOST_ENTRIES, _parts, _Sum, cotangents, gram, rowwise_kernel

CLASSES = 3


class Shared(nn.Module):
    """One convolution called twice, two layers with one weight, a branch that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 4, 3, padding=1)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.unused, self.head = nn.Linear(4, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(torch.tanh(self.conv(self.stem(x)))).mean(dim=(2, 3))
        return self.head(torch.tanh(self.first(x)) + self.second(x))


class Tokens(nn.Module):
    """A linear layer at many positions, more than it has features."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(2, features), nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embed(x.flatten(2).transpose(1, 2))).mean(dim=1))


def convolutions(**options: object) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, bias=False, **options),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 6, (3, 1), groups=3, padding=(1, 0), dilation=(1, 1)),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, CLASSES),
    )


class Normed(nn.Module):
    """Convolutions with batch norms in between and over features."""

    def __init__(self, *, tracked: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2)
        self.norm = nn.BatchNorm2d(4, track_running_stats=tracked)
        self.mix, self.last = nn.Conv2d(4, 4, 1, groups=2), nn.BatchNorm1d(4, track_running_stats=tracked)
        self.head = nn.Linear(4, CLASSES)
        for norm in (self.norm, self.last):
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)
            if tracked:
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm(self.conv(x)))
        return self.head(self.last(torch.tanh(self.mix(x)).mean(dim=(2, 3))))


NETWORKS = {
    "stride": lambda: convolutions(stride=2, padding=1),
    "dilation": lambda: convolutions(dilation=2, padding=(2, 1)),
    "same": lambda: convolutions(padding="same", dilation=(1, 2)),
    "valid": lambda: convolutions(padding="valid"),
    "reflect": lambda: convolutions(padding=1, padding_mode="reflect", stride=(1, 2)),
    "circular": lambda: convolutions(padding="same", padding_mode="circular"),
    "shared": Shared,
    "tokens, few features": lambda: Tokens(3),
    "tokens, many features": lambda: Tokens(5000),
    "norms in evaluation": lambda: Normed(tracked=True),
}


@pytest.fixture
def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(5, 2, 7, 6, generator=generator, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])


def expected(rows: Tensor, labels: Tensor, output: str) -> Tensor:
    """J Jᵀ for rows of (m, classes, parameters)."""
    if output == "true_class":
        rows = rows[torch.arange(len(rows)), labels]
    elif output == "sum":
        rows = rows.sum(dim=1)
    else:
        rows = rows.flatten(0, 1)
    return rows @ rows.T


@pytest.mark.parametrize("output", ["true_class", "sum", "all"])
@pytest.mark.parametrize("name", NETWORKS)
def test_kernel_equals_jacobian_product(name, output, batch, jacobian):
    network = NETWORKS[name]().double().eval()
    kernel = ntk(network, batch, output=output, batch_statistics=False)
    oracle = expected(jacobian(network, batch[0]), batch[1], output)
    torch.testing.assert_close(kernel.matrix, oracle, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("output", ["true_class", "sum", "all"])
@pytest.mark.parametrize("name", NETWORKS)
def test_diagonal_is_computed_alone(name, output, batch, jacobian, monkeypatch):
    network = NETWORKS[name]().double().eval()
    oracle = expected(jacobian(network, batch[0]), batch[1], output).diagonal()
    monkeypatch.setattr(Passes, "kernel", None)
    with Passes(network, batch, batch_statistics=False) as passes:
        found = kernel_diagonal(passes, output)
    torch.testing.assert_close(found, oracle, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("tracked", [True, False])
def test_the_diagonal_with_the_batch_s_statistics(tracked, batch):
    network = Normed(tracked=tracked).double().train()
    for coupled in (False, True):
        kernel = ntk(network, batch, coupled=coupled)
        found = NTKMeanDiagonal(coupled=coupled)(network, batch)
        assert float(found) == pytest.approx(kernel.mean_diagonal, rel=1e-9)
        assert float(NTKSqrtMeanDiagonal(coupled=coupled)(network, batch)) ** 2 == pytest.approx(
            kernel.trace / 5, rel=1e-9
        )


def test_diagonal_is_taken_from_an_existing_kernel(batch, monkeypatch):
    network = Normed(tracked=True).double().eval()
    alone = score(network, batch, {"diagonal": NTKMeanDiagonal()})
    monkeypatch.setattr("nas_lightning.metrics.engine.layerwise_diagonal", None)
    both = score(network, batch, {"diagonal": NTKMeanDiagonal(), "kappa": NTKCondition()})
    assert both["diagonal"] == pytest.approx(alone["diagonal"], rel=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_of_the_loss_sample_by_sample(name, batch):
    """One backward pass for each image, of its own loss."""
    network, (x, y) = NETWORKS[name]().double().eval(), batch
    losses = F.cross_entropy(network(x), y, reduction="none")
    total = 0.0
    for loss in losses:
        found = torch.autograd.grad(loss, [*network.parameters()], retain_graph=True, allow_unused=True)
        total += sum(float(g.square().sum()) for g in found if g is not None)
    value = score(network, batch, {"norm": SampleGradNorm()}, batch_statistics=False)["norm"]
    assert value**2 == pytest.approx(total / len(x), rel=1e-9)


@pytest.mark.parametrize("output", ["true_class", "sum", "all"])
def test_coupled_is_the_jacobian_through_batch_statistics(output, batch, jacobian):
    network = Normed(tracked=False).double().train()
    oracle = expected(jacobian(network, batch[0]), batch[1], output)
    kernel = ntk(network, batch, output=output, coupled=True)
    torch.testing.assert_close(kernel.matrix, oracle, rtol=1e-9, atol=1e-9)
    uncoupled = ntk(network, batch, output=output)
    assert not torch.allclose(uncoupled.matrix, oracle, rtol=1e-3)
    if output != "all":  # the rows of both add up to the same gradient
        torch.testing.assert_close(uncoupled.matrix.sum(), oracle.sum())


def test_coupled_with_a_layer_that_is_never_used(batch, jacobian):
    network = Shared().double().eval()
    oracle = expected(jacobian(network, batch[0]), batch[1], "true_class")
    torch.testing.assert_close(ntk(network, batch, coupled=True).matrix, oracle, rtol=1e-9, atol=1e-9)


def test_uncoupled_is_the_gradient_for_parameters_of_each_samples_own(batch):
    """Every sample gets a copy of the parameters; the batch statistics are still those of the batch."""
    network = Normed(tracked=False).double().train()
    x, labels = batch
    copies = [{n: p.detach().clone().requires_grad_() for n, p in network.named_parameters()} for _ in x]

    def norm(values: Tensor, name: str) -> Tensor:
        normal = F.batch_norm(values, None, None, training=True)
        shape = (-1,) + (1,) * (values.dim() - 2)
        pairs = zip(normal, copies, strict=True)
        return torch.stack(
            [v * c[f"{name}.weight"].view(shape) + c[f"{name}.bias"].view(shape) for v, c in pairs]
        )

    def conv(values: Tensor, name: str, **options: int) -> Tensor:
        pairs = zip(values, copies, strict=True)
        return torch.stack([F.conv2d(v, c[f"{name}.weight"], c[f"{name}.bias"], **options) for v, c in pairs])

    hidden = torch.tanh(norm(conv(x, "conv", stride=2), "norm"))
    hidden = norm(torch.tanh(conv(hidden, "mix", groups=2)).mean(dim=(2, 3)), "last")
    logits = torch.stack(
        [F.linear(v, c["head.weight"], c["head.bias"]) for v, c in zip(hidden, copies, strict=True)]
    )
    logits[torch.arange(5), labels].sum().backward()
    rows = torch.stack([torch.cat([p.grad.flatten() for p in copy.values()]) for copy in copies])
    torch.testing.assert_close(ntk(network, batch).matrix, rows @ rows.T, rtol=1e-9, atol=1e-9)


def test_linear_model_in_closed_form(generator):
    x = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 1, 0, 1])
    network = nn.Linear(3, 2, bias=False).double()
    same = (labels[:, None] == labels[None]).double()
    torch.testing.assert_close(ntk(network, (x, labels)).matrix, x @ x.T * same)
    torch.testing.assert_close(ntk(network, (x, labels), output="sum").matrix, 2 * x @ x.T)
    full = ntk(network, (x, labels), output="all").matrix
    torch.testing.assert_close(full, torch.kron(x @ x.T, torch.eye(2, dtype=torch.float64)))


def test_wide_architecture_of_theorem_7_4(generator):
    """Thesis of Shu, theorem 7.4: f = 1ᵀ Σ W⁽ⁱ⁾ x with XᵀX = I has Θ₀ = L·n·I."""

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, 6, bias=False) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            return sum(layer(x) for layer in self.layers).sum(dim=1, keepdim=True)

    x = torch.linalg.qr(torch.randn(6, 5, generator=generator, dtype=torch.float64)).Q.T
    kernel = ntk(Wide().double(), (x, torch.zeros(5, dtype=torch.long)))
    torch.testing.assert_close(kernel.matrix, 4 * 6 * torch.eye(5, dtype=torch.float64))
    assert kernel.condition == pytest.approx(1)


def test_frozen_layers_are_excluded(batch, jacobian):
    network = convolutions().double().eval()
    network[0].weight.requires_grad_(False)
    oracle = expected(jacobian(network, batch[0]), batch[1], "true_class")
    torch.testing.assert_close(ntk(network, batch).matrix, oracle)


@pytest.mark.parametrize("seed", range(20))
def test_singular_kernel_has_infinite_condition(seed, batch):
    """float32, two samples alike: rounding alone makes κ negative or large and finite in a plain quotient."""
    torch.manual_seed(seed)
    network, (x, labels) = convolutions(), batch
    x[3], x[4] = x[0], x[1]
    kernel = ntk(network, (x.float(), labels))
    assert kernel.is_singular
    assert kernel.condition == torch.inf
    assert kernel.lambda_min == 0
    assert kernel.lambda_max > 0


def test_a_regular_kernel_keeps_its_small_eigenvalues():
    values = torch.tensor([1e-4, 0.5, 1.0, 2.0], dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    kernel = Kernel(turn @ values.diag() @ turn.T, precision=torch.finfo(torch.float32).eps)
    assert not kernel.is_singular
    assert kernel.condition == pytest.approx(2e4)
    assert kernel.lambda_min == pytest.approx(1e-4)
    assert kernel.mean_diagonal == pytest.approx(float(values.mean()))
    assert kernel.frobenius == pytest.approx(float((values**2).sum().sqrt()))


def test_a_kernel_of_zeros_or_nan_is_singular():
    for matrix in (torch.zeros(3, 3), torch.full((3, 3), torch.nan)):
        kernel = Kernel(matrix, precision=1e-7)
        assert kernel.is_singular
        assert kernel.condition == torch.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x[:1], y[:1]), "at least two samples"),
        (lambda x, y: (x, y[:3]), "labels"),
        (lambda x, y: (x, y + 1), "Labels must be from 0 to 2 for 3 classes"),
    ],
)
def test_wrong_batch_raises(change, message, batch):
    with pytest.raises(InputError, match=message):
        ntk(convolutions().double(), change(*batch))
    with pytest.raises(InputError, match="true_class"):
        ntk(convolutions().double(), batch, output="logit")


@pytest.mark.parametrize("entries", [1, 5, 10, 11, 23, 1000])
def test_size_of_parts(entries):
    """Each fits or is a single parameter, and none would have taken the next one, too."""
    sizes = [4, 6, 1, 20, 3, 3, 5, 10, 1]
    parts = [[p.numel() for p in part] for part in _parts([torch.zeros(n) for n in sizes], entries)]
    assert [n for part in parts for n in part] == sizes
    assert all(sum(part) <= entries or len(part) == 1 for part in parts)
    assert all(sum(part) + following[0] > entries for part, following in pairwise(parts))


def test_parts_change_no_kernel(monkeypatch, generator):
    layers = [nn.Linear(3, 4), nn.Linear(4, 2)]
    x = torch.randn(5, 3, generator=generator)
    logits = layers[1](layers[0](x).relu())
    parameters = [p for layer in layers for p in layer.parameters()]
    whole = rowwise_kernel(parameters, logits, cotangents(logits, torch.zeros(5, dtype=torch.long), "all"))
    monkeypatch.setattr("nas_lightning.metrics.kernel._MOST_ENTRIES", 10 * 12)
    less = rowwise_kernel(parameters, logits, cotangents(logits, torch.zeros(5, dtype=torch.long), "all"))
    torch.testing.assert_close(less, whole)
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(logits[i, c], parameters, retain_graph=True)])
        for i in range(5)
        for c in range(2)
    ]
    torch.testing.assert_close(whole, torch.stack(rows).double() @ torch.stack(rows).double().T)


def test_a_part_is_as_many_passes_as_there_are_rows(monkeypatch, generator):
    """12 entries a part for 10 rows: [12], [4, 8], [2]."""
    network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    logits, passes, gradient = network(torch.randn(5, 3, generator=generator)), [], torch.autograd.grad
    monkeypatch.setattr("nas_lightning.metrics.kernel._MOST_ENTRIES", 10 * 12)
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **n: passes.append(len(a[1])) or gradient(*a, **n))
    rowwise_kernel([*network.parameters()], logits, cotangents(logits, torch.zeros(5), "all"))
    assert passes == [1] * 10 + [2] * 10 + [1] * 10
    assert 4 * _MOST_ENTRIES == 2**30  # bytes, in float32


def test_a_weight_of_two_kinds_of_layers(monkeypatch, batch, jacobian):
    """One divides its columns into blocks where they are many, the other does not."""
    network = nn.Sequential(
        *(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.ConvTranspose2d(4, 2, 3), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(2 * 7 * 6, CLASSES)),
    )
    network[2].weight = network[0].weight
    network = network.double().eval()
    oracle = expected(jacobian(network, batch[0]), batch[1], "true_class")
    for entries in (rules._BLOCK, 1):
        monkeypatch.setattr(rules, "_BLOCK", entries)
        torch.testing.assert_close(ntk(network, batch).matrix, oracle, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["stride", "shared"])
def test_gradients_are_dropped_as_soon_as_their_layer_is_done(name, batch, monkeypatch):
    left, finish = [], _Sum.finish
    monkeypatch.setattr(_Sum, "finish", lambda self: left.append({**self.gradients}) or finish(self))
    ntk(NETWORKS[name]().double().eval(), batch, output="all", batch_statistics=False)
    assert left == [{}]


@pytest.mark.parametrize("output", ["", "Sum", "a", "alb", "true", "zz"])
def test_unknown_output_raises(output):
    with pytest.raises(InputError, match="'true_class', 'sum' or 'all'"):
        cotangents(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), output)


def test_a_condition_is_a_ratio_and_a_kernel_stays():
    kernel = Kernel(torch.diag(torch.tensor([5.0, 3.0, 2.0])), precision=1e-7)
    assert kernel.condition == pytest.approx(2.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.precision = 1.0


def test_the_floor_is_of_the_largest_eigenvalue():
    """rows · ε · λ_max = 3 · 0.01 · 100: what is below is zero, what is above stays."""
    for smallest, kept in ((2.9, 0.0), (3.1, 3.1)):
        kernel = Kernel(
            torch.diag(torch.tensor([100.0, 10.0, smallest], dtype=torch.float64)), precision=0.01
        )
        assert kernel.lambda_min == pytest.approx(kept)


def test_a_small_largest_eigenvalue_has_a_small_floor():
    kernel = Kernel(torch.diag(torch.tensor([1e-3, 1e-8], dtype=torch.float64)), precision=1e-7)
    assert kernel.condition == pytest.approx(1e5)


@pytest.mark.parametrize(
    ("features", "classes", "outer"),
    [(9, 2, False), (8, 2, True), (2, 9, False), (2, 8, True), (100, 2, False), (2, 2, True)],
)
def test_a_linear_layer_takes_the_cheaper_way(features, classes, outer, monkeypatch, generator, jacobian):
    """With three positions that is the outer products as long as both are below 3²."""

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(features, classes, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x).mean(dim=1)

    x = torch.randn(5, 3, features, generator=generator, dtype=torch.float64)
    columns, network, labels = [], Mean().double(), torch.tensor([0, 1, 1, 0, 1])
    monkeypatch.setattr(sums, "gram", lambda rows: columns.append(rows.shape[1]) or gram(rows))
    kernel = ntk(network, (x, labels))
    assert columns == [features * classes] * outer
    torch.testing.assert_close(kernel.matrix, expected(jacobian(network, x), labels, "true_class"))


def test_all_outputs_of_two_classes(generator, jacobian):
    network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 2)).double()
    x, labels = torch.randn(4, 2, 6, 6, generator=generator, dtype=torch.float64), torch.tensor([0, 1, 1, 0])
    oracle = expected(jacobian(network, x), labels, "all")
    torch.testing.assert_close(ntk(network, (x, labels), output="all").matrix, oracle)


def test_a_product_is_the_sum_of_its_blocks(monkeypatch, generator):
    rows = torch.randn(4, 10, generator=generator, dtype=torch.float64)
    monkeypatch.setattr(products, "_BLOCK", 3)
    widths, split = [], Tensor.split
    monkeypatch.setattr(Tensor, "split", lambda *a, **n: widths.extend(split(*a, **n)) or split(*a, **n))
    torch.testing.assert_close(gram(rows), rows @ rows.T)
    assert [part.shape for part in widths] == [(4, 3), (4, 3), (4, 3), (4, 1)]


@pytest.mark.parametrize("count", [1, 127, 128, 129, 300])
def test_only_the_upper_half_of_a_product_is_multiplied(generator, count):
    rows = torch.randn(count, 7, generator=generator, dtype=torch.float64)
    product = gram(rows)
    torch.testing.assert_close(product, rows @ rows.T)
    assert torch.equal(product, product.T)
