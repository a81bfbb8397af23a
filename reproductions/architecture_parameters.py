"""When the largest architecture parameter is the best candidate (Roberts et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nas_lightning.errors import InputError
from nas_lightning.objectives.inherited import kendall_tau
from nas_lightning.runs.facts import Findings
from nas_lightning.spaces.activations import ACTIVATIONS
from nas_lightning.strategies.one_shot.arch_steps import exponentiated_gradient
from nas_lightning.studies.base import Study
from nas_lightning.studies.scoring import mean_estimate
from nas_lightning.utils.progress import follow
from nas_lightning.utils.tables import Entry, Table
from nas_lightning.validation import (
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
    at_least,
    at_most,
    checked,
    entries,
)

# When the largest architecture parameter is the best architecture (Roberts et al. 2022, sections 4.1–4.3).
#
# A supernet mixes the outputs of its candidates, f_α(x) = Σ_i α_i f_i(x) with α on the simplex, as activation
# search in a two-layer network does. With L(f, g) = ½ E (f − g)² and labels that the supernet fits exactly,
#
#     L(f_i, y) = (1 − α_i)² L(f_i, m_i),    m_i = Σ_{k≠i} α_k/(1 − α_i) f_k,
#
# so for two candidates the smaller loss with shared weights has the larger α (theorem 1). For more it has
# where
#
#     L(f_i, m_i) ≥ L(f_j, m_j)                                                      (condition 6)
#
# holds for the better candidate i and the worse one j (theorem 7).


class Verdict(NamedTuple):
    """The verdict on two candidates; `better` has the smaller loss with the shared weights."""

    better: int  # the number of that candidate
    worse: int  # and of the other
    condition: bool
    """Condition 6, which is always met by two candidates."""
    ordered: bool
    """α_better > α_worse."""


def verdicts(outputs: Tensor, alpha: Tensor, labels: Tensor) -> list[Verdict]:
    """Return condition 6 and the order of α for every pair of candidates with different losses.

    Args:
        outputs: f_i(x) of every candidate with the shared weights, (candidates, samples).
        alpha: the architecture parameters, inside the simplex, (candidates,).
        labels: y, (samples,).

    >>> f = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    >>> alpha = torch.tensor([0.7, 0.3], dtype=torch.float64)
    >>> verdicts(f, alpha, alpha @ f)
    [Verdict(better=0, worse=1, condition=True, ordered=True)]
    """
    if not bool((alpha > 0).all()) or not torch.isclose(alpha.sum(), alpha.new_ones(())):
        raise ValueError(f"expected α inside the simplex, got {alpha.tolist()}")
    losses = risk(outputs, labels)
    distances = risk(outputs, mixtures_of_others(outputs, alpha))
    pairs = permutations(range(len(alpha)), 2)
    slack = 1e-12 * distances.max()  # two candidates have equal distances, up to rounding
    return [
        Verdict(i, j, bool(distances[i] >= distances[j] - slack), bool(alpha[i] > alpha[j]))
        for i, j in pairs
        if losses[i] < losses[j]
    ]


def risk(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return L(f, g) = ½ E (f − g)² of each candidate, (candidates, samples) → (candidates,)."""
    return 0.5 * (outputs - targets).square().mean(dim=1)


def mixtures_of_others(outputs: Tensor, alpha: Tensor) -> Tensor:
    """Return m_i = Σ_{k≠i} α_k/(1 − α_i) f_k (lemma 5), (candidates, samples)."""
    everything = alpha @ outputs  # (samples,)
    return (everything - alpha[:, None] * outputs) / (1 - alpha[:, None])


# When the largest α is the best activation (Roberts et al. 2022, theorem 1 and condition 6).
#
# Two-layer networks f(x) = vᵀ Σ_i α_i σ_i(W x) that label their own inputs, so that the data are realizable:
# W, v, α, and x are drawn, and every pair of candidates is compared by its loss with the shared weights. Then
# α and W are also *found* from such labels, by GAEA's exponentiated gradient and Adam, which fit them only
# approximately: on all samples, and bilevel as in the paper, the weights on one half and α on the other.

_NOTE = (
    "Condition 6 is met by every pair of two candidates, and is sufficient on realizable data: all pairs "
    "that meet it must be ordered as α is. Found models leave an error, a share of the labels' variance"
)
_SUMMARY = ["α and W", "h", "models", "pairs", "condition 6", "of these ordered", "others"]
_SUMMARY += ["others ordered", "Kendall's τ", "error"]
_PAIRS = ["h", "better", "worse", "its loss", "other's loss", "its α", "other's α", "condition 6", "ordered"]

Samples = tuple[Tensor, Tensor]
"""Inputs (n, d) and labels (n,)."""
Candidates = Annotated[int, at_least(2), at_most(len(ACTIVATIONS))]


class Model(NamedTuple):
    """A mixture of activations with its weights.

    Args:
        names: names of the activations.
        W: weights of the first layer.
        v: weights of the second layer.
        alpha: weights of the mixture.

    >>> model = Model(["relu", "tanh"], torch.eye(2), torch.ones(2), torch.tensor([1.0, 0.0]))
    >>> model.labels(torch.tensor([[1.0, 2.0]]))
    tensor([3.])
    """

    names: Sequence[str]
    W: Tensor  # (k, d)
    v: Tensor  # (k,)
    alpha: Tensor  # (h,)

    def outputs(self, x: Tensor) -> Tensor:
        """Return f_i(x) of each candidate, (n, d) → (h, n)."""
        return torch.stack([ACTIVATIONS[name](x @ self.W.T) @ self.v for name in self.names])

    def labels(self, x: Tensor) -> Tensor:
        """Return f(x) = Σ_i α_i f_i(x), (n, d) → (n,)."""
        return self.alpha @ self.outputs(x)


class TwoLayerOrder(Study):
    """Compare the order of α with the order by loss, pair by pair and by Kendall's τ.

    Args:
        candidates: numbers h of activations in the mixture.
        models: number of models for each h.
        refits: number of models whose α and W are found again, on all samples and bilevel.
        steps: steps of finding them.
        lr: learning rate of the weights (Adam).
        arch_lr: η of the exponentiated gradient.
        width: k, hidden units.
        dimension: d of the standard normal inputs.
        samples: number of inputs; half of them for each level if bilevel.
        seed: seed of all draws.

    >>> findings = TwoLayerOrder(candidates=[2], models=2, refits=0, samples=32).run()
    >>> [table.name for table in findings.tables], 0 < findings.numbers["tau_2"] <= 1
    (['order', 'pairs'], True)
    """

    @checked
    def __init__(
        self,
        *,
        candidates: Annotated[Sequence[Candidates], entries(1)] = (2, 3, 4, 5),
        models: PositiveInt = 100,
        refits: NonNegativeInt = 5,
        steps: PositiveInt = 500,
        lr: PositiveFloat = 0.02,
        arch_lr: PositiveFloat = 0.1,
        width: PositiveInt = 16,
        dimension: PositiveInt = 8,
        samples: Annotated[int, at_least(2)] = 512,
        seed: Seed = 0,
    ) -> None:
        if refits > models:
            raise InputError("expected no more than there are models", got=refits, where="study.refits")
        self.candidates, self.models, self.refits, self.steps = list(candidates), models, refits, steps
        self.lr, self.arch_lr = lr, arch_lr
        self.width, self.dimension, self.samples, self.seed = width, dimension, samples, seed

    def run(self) -> Findings:
        """Compare all pairs of every model."""
        generator = torch.Generator().manual_seed(self.seed)
        summary: list[list[Entry]] = []
        pairs: list[list[Entry]] = []
        numbers = {}
        for h in follow(self.candidates, "mixtures"):
            drawn = [self.draw(h, generator) for _ in range(self.models)]
            given = [_judge(model, x, model.labels(x)) for model, x in drawn]
            found = [self.judge_found(model, x, generator) for model, x in drawn[: self.refits]]
            single, bilevel = zip(*found, strict=True) if found else ((), ())
            judged = {"given": given, "found": single, "found bilevel": bilevel}
            summary += [[kind, h, *_summary(models)] for kind, models in judged.items() if models]
            pairs += [[h, *row] for row in _rows(*drawn[0])]
            numbers[f"tau_{h}"] = float(np.mean([one.tau for one in given]))
        what = f"k = {self.width}, d = {self.dimension}, {self.samples} inputs"
        title = f"Order of α and order by loss: {what}"
        each = "Every pair of the first model of each h"
        tables = [
            Table("order", title, _SUMMARY, summary, _NOTE),
            Table("pairs", each, _PAIRS, pairs, long=len(pairs) > 12),
        ]
        return Findings(tables, numbers=numbers)

    def draw(self, h: int, generator: torch.Generator) -> tuple[Model, Tensor]:
        """Draw a model, with α uniform on the simplex, and its inputs."""

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        order = torch.randperm(len(ACTIVATIONS), generator=generator)[:h].tolist()
        exponential = 1e-9 - torch.rand(h, dtype=torch.float64, generator=generator).clamp_min(1e-12).log()
        W, v = normal(self.width, self.dimension), normal(self.width) / self.width**0.5
        model = Model([list(ACTIVATIONS)[i] for i in order], W, v, exponential / exponential.sum())
        return model, normal(self.samples, self.dimension)

    def judge_found(
        self, model: Model, x: Tensor, generator: torch.Generator
    ) -> tuple[ModelJudgment, ModelJudgment]:
        """Find α and W from the labels on all samples, and bilevel, from the same start."""
        W = torch.randn(model.W.shape, dtype=torch.float64, generator=generator)
        v = torch.randn(model.v.shape, dtype=torch.float64, generator=generator) / len(model.v) ** 0.5
        start = Model(model.names, W, v, torch.full_like(model.alpha, 1 / len(model.alpha)))
        y, half = model.labels(x), len(x) // 2
        single = self.find(start, (x, y), (x, y))
        bilevel = self.find(start, (x[:half], y[:half]), (x[half:], y[half:]))
        return _judge(single, x, y), _judge(bilevel, x, y)

    def find(self, start: Model, weights_side: Samples, arch_side: Samples) -> Model:
        """Fit W and v by Adam on one side's samples, and α by the exponentiated gradient on the other's."""
        W, v, alpha = (tensor.clone().requires_grad_() for tensor in (start.W, start.v, start.alpha))
        model, optimizer = Model(start.names, W, v, alpha), torch.optim.Adam([W, v], lr=self.lr)
        for _ in range(self.steps):
            (slope,) = torch.autograd.grad(_loss(model, *arch_side), [alpha])
            optimizer.zero_grad()
            _loss(model, *weights_side).backward(inputs=[W, v])
            optimizer.step()
            with torch.no_grad():
                alpha.copy_(exponentiated_gradient(alpha, slope, self.arch_lr))
        return Model(start.names, W.detach(), v.detach(), alpha.detach())


def _loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
    """½ E (f − y)²."""
    return 0.5 * (model.labels(x) - y).square().mean()


class ModelJudgment(NamedTuple):
    """Results for one model.

    Args:
        verdicts: verdicts on all pairs of candidates.
        tau: Kendall's τ between the order of α and that by loss.
        error: squared error as a share of the labels' variance.
    """

    verdicts: list[Verdict]
    tau: float
    error: float


def _judge(model: Model, x: Tensor, y: Tensor) -> ModelJudgment:
    outputs = model.outputs(x)
    tau = kendall_tau(model.alpha.tolist(), risk(outputs, y).tolist())
    error = float((model.alpha @ outputs - y).square().mean() / y.var())
    return ModelJudgment(verdicts(outputs, model.alpha, y), tau, error)


def _summary(judged: Sequence[ModelJudgment]) -> list[Entry]:
    every = [verdict for one in judged for verdict in one.verdicts]
    met = [verdict for verdict in every if verdict.condition]
    others = [verdict for verdict in every if not verdict.condition]
    return [
        *(len(judged), len(every), len(met), sum(v.ordered for v in met)),
        *(len(others), sum(v.ordered for v in others)),
        mean_estimate([one.tau for one in judged]),
        float(np.mean([one.error for one in judged])),
    ]


def _rows(model: Model, x: Tensor) -> list[list[Entry]]:
    y = model.labels(x)
    losses, alpha = risk(model.outputs(x), y).tolist(), model.alpha.tolist()
    rows: list[list[Entry]] = []
    for v in verdicts(model.outputs(x), model.alpha, y):
        pair = v.better, v.worse
        said = ["met" if v.condition else "not met", "yes" if v.ordered else "no"]
        rows.append([*(values[i] for values in (model.names, losses, alpha) for i in pair), *said])
    return rows
