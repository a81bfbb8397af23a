"""The empirical neural tangent kernel, layer by layer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.metrics.layers import IncompleteError, linear_weight, positions, rule_of, rules_of
from nas_lightning.metrics.recording import uses_of
from nas_lightning.utils.devices import double, double_zeros

if TYPE_CHECKING:
    from nas_lightning.metrics.recording import Call, Calls


# Products of the rows of a Jacobian, summed in float64.

_BLOCK = 8192  # columns whose products are added up in the network's precision before float64 takes over
_ROWS = 128  # of a product: small enough to leave out nearly half of a large kernel


def gram(rows: Tensor) -> Tensor:
    """Return G Gᵀ in float64; a complex column counts as two real ones.

    >>> gram(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    tensor([[5., 6.],
            [6., 9.]], dtype=torch.float64)
    """
    rows = _real(rows)
    total = double_zeros(len(rows), len(rows), like=rows)
    for block in rows.split(_BLOCK, dim=1):
        for start in range(0, len(rows), _ROWS):  # only the upper triangle
            product = block[start : start + _ROWS] @ block[start:].T
            total[start : start + _ROWS, start:] += double(product)
    return total.triu() + total.triu(1).T


def squared_norms(rows: Tensor) -> Tensor:
    """Return the diagonal of G Gᵀ.

    >>> squared_norms(torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([25.,  1.], dtype=torch.float64)
    """
    rows = _real(rows)
    return torch.stack([double(block.square().sum(dim=1)) for block in rows.split(_BLOCK, dim=1)]).sum(dim=0)


def _real(rows: Tensor) -> Tensor:
    return torch.view_as_real(rows).flatten(1) if rows.is_complex() else rows


# Kernels as matrices.


@dataclass(frozen=True)
class Kernel:
    """A kernel and its spectrum.

    >>> kernel = Kernel(torch.diag(torch.tensor([4.0, 1.0])), precision=1e-7)
    >>> kernel.trace, kernel.condition, kernel.lambda_min
    (5.0, 4.0, 1.0)
    """

    matrix: Tensor
    """(rows, rows), symmetric, float64."""
    precision: float
    """Relative precision of the arithmetic in which the kernel was computed."""

    @cached_property
    def eigenvalues(self) -> Tensor:
        """The eigenvalues in ascending order, float64; those below the rounding error are zero."""
        matrix = double(self.matrix)
        matrix = (matrix + matrix.T) / 2
        if not bool(torch.isfinite(matrix).all()):
            return matrix.new_full((len(matrix),), torch.nan)
        values = torch.linalg.eigvalsh(matrix)
        # the tolerance of a numerical rank: rows · ε · λ_max
        floor = len(matrix) * self.precision * values[-1].clamp(min=0)
        return torch.where(values > floor, values, torch.zeros_like(values))

    @property
    def trace(self) -> float:
        return float(self.matrix.diagonal().sum())

    @property
    def mean_diagonal(self) -> float:
        return float(self.matrix.diagonal().mean())

    @property
    def frobenius(self) -> float:
        return float(torch.linalg.matrix_norm(self.matrix))

    @property
    def lambda_min(self) -> float:
        """The smallest eigenvalue, 0 if the kernel is singular to working precision."""
        return float(self.eigenvalues[0])

    @property
    def lambda_max(self) -> float:
        return float(self.eigenvalues[-1])

    @property
    def is_singular(self) -> bool:
        """Whether the rank is deficient to working precision."""
        return not self.lambda_min > 0

    @property
    def condition(self) -> float:
        """κ = λ_max / λ_min, infinite for a singular kernel; never negative, never NaN."""
        return torch.inf if self.is_singular else self.lambda_max / self.lambda_min


# The empirical neural tangent kernel Θ₀ = J Jᵀ (Jacot et al. 2018, arXiv:1806.07572), J = ∂f/∂θ.
#
# Θ₀ is a sum of kernels, one per parameter. Each is added as soon as the backward pass has reached all
# calls of its layer, so the Jacobian, of the size of the batch times the network, is never stored.
#
# With batch statistics outputs depend on each other's inputs, and there are two kernels:
#
# - `coupled=False`: one backward pass of Σ_i f_i; row i is the share of ∂(Σ_j f_j)/∂θ that flows through
#   sample i's activations, as in the public code of HNAS (thesis, chapter 7). It costs one forward and one
#   backward pass. If no layer mixes samples it is J Jᵀ exactly. Parameters used outside a layer's call (class
#   tokens, fused attention, recurrent layers) have no such shares: networks with them use the other kernel,
#   with a warning.
# - `coupled=True`: row i is ∂f_i/∂θ through the forward pass of the whole batch, as in the public code of
#   TE-NAS (Chen et al. 2021, arXiv:2102.11535): J Jᵀ exactly, for layers of any type. It costs m backward
#   passes of the batch, and holds the m rows.

Output = Literal["true_class", "sum", "all"]
"""f: the logit of the true class, the sum of the logits, or all logits (a kernel of m·n rows)."""

_MOST_ENTRIES = 2**28  # of the rows in memory


def cotangents(logits: Tensor, labels: Tensor, output: Output) -> list[Tensor]:
    """Return ∂f/∂logits for each row of a sample: one tensor (m, n), or n of them for `all`."""
    if output == "true_class":
        return [torch.nn.functional.one_hot(labels, logits.shape[1]).to(logits)]
    if output == "sum":
        return [torch.ones_like(logits)]
    if output == "all":
        columns = torch.eye(logits.shape[1], dtype=logits.dtype, device=logits.device)
        return [column.expand_as(logits) for column in columns]
    raise InputError("`output` must be 'true_class', 'sum' or 'all'", got=output)


def layerwise_kernel(calls: Calls, logits: Tensor, cotangents: Sequence[Tensor]) -> Tensor:
    """Return the kernel for `coupled=False`, (m·r, m·r) for r cotangents, ordered by sample."""
    return _add_up(_Sum, calls, logits, cotangents)


def layerwise_diagonal(calls: Calls, logits: Tensor, cotangents: Sequence[Tensor]) -> Tensor:
    """Return the diagonal of `layerwise_kernel`, (m·r,), at a cost of O(m)."""
    return _add_up(_DiagonalSum, calls, logits, cotangents)


def _add_up(kind: type[_Sum], calls: Calls, logits: Tensor, cotangents: Sequence[Tensor]) -> Tensor:
    calls.check_complete(logits)  # or raises IncompleteError
    rows = len(logits) * len(cotangents)
    sum_ = kind(rows, calls, len(cotangents), logits)
    for number, cotangent in enumerate(cotangents):
        calls.backward(logits, cotangent, partial(sum_.note_gradient, number))
    _check_reached(logits, sum_.list_unreached(uses_of(logits)))
    return sum_.finish()


def _check_reached(logits: Tensor, missing: Sequence[tuple[Call, str]]) -> None:
    """Raise for a parameter that has a gradient although none came to its calls: no zero, but not seen."""
    parameters = [call.layer.get_parameter(name) for call, name in missing]
    if not parameters:
        return
    gradients = torch.autograd.grad(logits.sum(), parameters, retain_graph=True, allow_unused=True)
    for (call, name), gradient in zip(missing, gradients, strict=True):
        if gradient is not None:
            raise IncompleteError(f"no gradient reached {name} of {call.name!r}")


def rowwise_kernel(parameters: Sequence[Tensor], logits: Tensor, cotangents: Sequence[Tensor]) -> Tensor:
    """Return the kernel for `coupled=True`, (m·r, m·r) for r cotangents: one backward pass per row.

    If the rows take more than a gigabyte, the parameters are split, with a pass per row and part.
    """
    m, r = len(logits), len(cotangents)
    kernel = double_zeros(m * r, m * r, like=logits)
    for part in _parts(parameters, _MOST_ENTRIES // (m * r)):
        rows: list[list[Tensor]] = [[] for _ in part]
        for sample in range(m):
            for cotangent in cotangents:
                f = (logits[sample] * cotangent[sample]).sum()
                gradients = torch.autograd.grad(f, part, retain_graph=True, materialize_grads=True)
                for kept, gradient in zip(rows, gradients, strict=True):
                    kept.append(gradient.to_dense().flatten())
        for kept in rows:
            kernel += gram(torch.stack(kept))
            kept.clear()
    return kernel


def _parts(parameters: Sequence[Tensor], entries: int) -> Iterator[list[Tensor]]:
    """Yield consecutive parameters with at most so many entries, or single ones."""
    part: list[Tensor] = []
    for parameter in parameters:
        if part and sum(p.numel() for p in part) + parameter.numel() > entries:
            yield part
            part = []
        part.append(parameter)
    yield part


class _Sum:
    """Adds the kernels of the parameters as their gradients arrive."""

    def __init__(self, rows: int, calls: Calls, passes: int, logits: Tensor) -> None:
        self.kernel = double_zeros(*self.shape(rows), like=logits)
        self.passes = passes
        self.gradients: dict[int, dict[int, Tensor]] = defaultdict(dict)  # call → pass → ∂f/∂z
        self.users: dict[int, list[tuple[Call, str]]] = defaultdict(list)  # parameter → calls, names
        self.reached: set[int] = set()  # calls
        self.done: set[int] = set()  # parameters
        for call in calls.parametric_calls:
            for name, parameter in call.trained:
                self.users[id(parameter)].append((call, name))
        self.missing = Counter({key: passes * len(users) for key, users in self.users.items()})

    def shape(self, rows: int) -> tuple[int, ...]:
        return rows, rows

    def product(self, rows: Tensor) -> Tensor:
        return gram(rows)

    def note_gradient(self, number: int, call: Call, dz: Tensor) -> None:
        """Record the gradient of one call's output in pass `number`."""
        self.gradients[id(call)][number] = dz
        self.reached.add(id(call))
        for _, parameter in call.trained:
            self.missing[id(parameter)] -= 1
            if not self.missing[id(parameter)]:
                self.done.add(id(parameter))
                self._add(self.users[id(parameter)])
                for user, _ in self.users[id(parameter)]:
                    if all(id(other) in self.done for _, other in user.trained):
                        del self.gradients[id(user)]

    def list_unreached(self, uses: Counter[int]) -> list[tuple[Call, str]]:
        """Return a call and the name of each parameter with more uses than reached calls."""
        return [
            users[0]
            for key, users in self.users.items()
            if sum(id(call) in self.reached for call, _ in users) < uses[key]
        ]

    def finish(self) -> Tensor:
        """Return the sum; gradients that did not arrive count as zero."""
        for key, users in self.users.items():
            if key not in self.done and self._with_gradients(users):
                self._add(users)
        return self.kernel

    def _with_gradients(self, users: list[tuple[Call, str]]) -> list[tuple[Call, str]]:
        return [(call, name) for call, name in users if id(call) in self.gradients]

    def _add(self, users: list[tuple[Call, str]]) -> None:
        reached = self._with_gradients(users)
        if all(rules_of(call.layer).get(name) is linear_weight for call, name in reached):
            self.kernel += self._linear([call for call, _ in reached])
        else:
            shares = [self._blocks(call, name) for call, name in reached]
            if len({type(call.layer) for call, _ in reached}) > 1:  # with other blocks of columns
                shares = [iter([torch.cat(list(blocks), dim=1)]) for blocks in shares]
            for blocks in zip(*shares, strict=True):
                self.kernel += self.product(sum(blocks[1:], start=blocks[0]))

    def _blocks(self, call: Call, name: str) -> Iterator[Tensor]:
        """(m·passes, columns) each, sample by sample."""
        rule = rule_of(call.layer, name, call.mark)
        for rows in zip(*(rule(call.layer, call.input, dz) for dz in self._passes(call)), strict=True):
            yield rows[0] if len(rows) == 1 else torch.stack(rows, dim=1).flatten(0, 1)

    def _passes(self, call: Call) -> list[Tensor]:
        received = self.gradients[id(call)]
        some = next(iter(received.values()))
        numbers = range(self.passes)
        return [received[number] if number in received else torch.zeros_like(some) for number in numbers]

    def _linear(self, calls: Sequence[Call]) -> Tensor:
        # ⟨Σ_t B_it A_itᵀ, Σ_s B_js A_jsᵀ⟩ = Σ_ts ⟨B_it, B_js⟩ ⟨A_it, A_js⟩: cheaper than outer products with
        # fewer positions than features
        x = torch.cat([positions(call.input) for call in calls], dim=1)  # (m, t, in)
        dz = torch.cat(
            [torch.stack([positions(g) for g in self._passes(call)], dim=1) for call in calls], dim=2
        )  # (m, passes, t, out)
        if x.shape[1] ** 2 > max(x.shape[2], dz.shape[3]):
            return self.product(torch.einsum("mpto,mti->mpoi", dz, x).flatten(0, 1).flatten(1))
        return self._of_positions(x, dz)

    def _of_positions(self, x: Tensor, dz: Tensor) -> Tensor:
        """Return the sum over pairs of positions, of x (m, t, in) and dz (m, passes, t, out)."""
        x = double(x.repeat_interleave(self.passes, dim=0).flatten(0, 1))  # (m·passes·t, in)
        dz = double(dz.flatten(0, 2))
        rows = len(self.kernel)
        return ((x @ x.T) * (dz @ dz.T)).unflatten(0, (rows, -1)).unflatten(2, (rows, -1)).sum(dim=(1, 3))


class _DiagonalSum(_Sum):
    """Adds only the diagonals."""

    def shape(self, rows: int) -> tuple[int, ...]:
        return (rows,)

    def product(self, rows: Tensor) -> Tensor:
        return squared_norms(rows)

    def _of_positions(self, x: Tensor, dz: Tensor) -> Tensor:
        x, dz = double(x).unsqueeze(1), double(dz)
        return ((x @ x.mT) * (dz @ dz.mT)).sum(dim=(2, 3)).flatten()
