"""The first two stages of NESBS: a supernet trained on all paths equally often, and a posterior of paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.optim import Optimizer

from nas_lightning.checks import NonNegativeFloat, PositiveFloat, Share, checked
from nas_lightning.data import SearchData
from nas_lightning.data.labels import class_labels
from nas_lightning.data.search import check_search_data, read_sides
from nas_lightning.errors import InputError
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.limit_pressure import LimitPressure
from nas_lightning.strategies.nesbs.posterior import Architectures
from nas_lightning.strategies.oneshot.relaxations import entropy, uniform_noise
from nas_lightning.strategies.oneshot.values import RelaxedWeights, SearchBatch
from nas_lightning.strategies.oneshot.weight_sharing import WeightSharing
from nas_lightning.tasks.multi_class import check_classes
from nas_lightning.training.gradients import accumulate, constant, gradients
from nas_lightning.training.optim import build_optimizer

Computed = Literal["all", "sampled"]
_WHERE = "strategy.posterior_share"


class PosteriorTraining(WeightSharing):
    """A supernet and, in the last epochs or beside it, the posterior p_α of its architectures.

    Args:
        space: the search space.
        supernet: its supernet.
        data: where the validation images come from.
        posterior_share: of the epochs, those at the end that train the posterior, each once over the
            validation images; 0 leaves the posterior uniform.
        best_response: train the posterior beside the supernet, whose paths it draws then, by the likelihood
            alone, without the divergence of (5.4) (sections 5.2.2 and 5.5.2); with posterior_share=0.
        arch_lr: learning rate of the posterior's Adam; the thesis' 0.01 is for its 2,300 steps.
        arch_betas: Adam's.
        arch_weight_decay: of α.
        tau: temperature of the posterior (5.6).
        gumbel_tau: temperature of the straight-through estimator.
        computed: `all` operations enter the gradient by α; with `sampled` only those that were drawn are
            computed, at the cost of a path, and those that were not count as if they changed nothing.
        likelihood_images: m; None: all validation images. A best response has none.
        **weight_sharing: see `WeightSharing`.
    """

    compilable = False

    @checked
    def __init__(
        self,
        space: SearchSpace,
        supernet: Supernet,
        data: SearchData,
        *,
        posterior_share: Share = 0.285,
        best_response: bool = False,
        arch_lr: PositiveFloat = 0.1,
        arch_betas: tuple[Share, Share] = (0.9, 0.999),
        arch_weight_decay: NonNegativeFloat = 3e-4,
        tau: PositiveFloat = 1.0,
        gumbel_tau: PositiveFloat = 1.0,
        computed: Computed = "all",
        likelihood_images: PositiveFloat | None = None,
        **weight_sharing: Any,
    ) -> None:
        super().__init__(space, supernet, **weight_sharing)
        if best_response and posterior_share:
            raise InputError("expected 0 with best_response=true", got=posterior_share, where=_WHERE)
        if best_response and likelihood_images is not None:
            where = "strategy.likelihood_images"
            raise InputError("expected null with best_response=true", got=likelihood_images, where=where)
        check_search_data(data, type(self).__name__)
        check_classes(supernet, "the likelihood of ensembles is of")
        self.data = data
        self.posterior_share, self.best_response = posterior_share, best_response
        self.arch_lr, self.arch_weight_decay = arch_lr, arch_weight_decay
        self.arch_betas = (arch_betas[0], arch_betas[1])
        self.tau, self.gumbel_tau, self.computed = tau, gumbel_tau, computed
        self.likelihood_images = likelihood_images
        self.distribution = Architectures(space)
        shapes = {name: group.shape for name, group in space.groups.items()}
        self.arch = nn.ParameterDict({name: torch.zeros(shape) for name, shape in shapes.items()})
        self.arch_list = list(self.arch.parameters())
        self.pressure = LimitPressure(space)

    @property
    def posterior_epochs(self) -> int:
        """How many epochs at the end train the posterior; the supernet keeps one at least."""
        return min(round(self.posterior_share * super().epochs), super().epochs - 1)

    @property
    def epochs(self) -> int:
        """The epochs of the supernet, which its learning rate follows."""
        return super().epochs - self.posterior_epochs

    @property
    def in_posterior(self) -> bool:
        """Whether this epoch is of the second stage."""
        return self.current_epoch >= self.epochs

    def training_step(self, batch: SearchBatch, batch_idx: int) -> Tensor | None:
        if not self.in_posterior:
            return super().training_step(batch, batch_idx)
        batches = int(min(self.data.valid_count, self.trainer.num_training_batches))
        if batch_idx < batches:  # an epoch of the posterior is one pass over its images
            self.waiting.append(read_sides(batch, self.weight_list[0].dtype, class_labels))
            if len(self.waiting) == self.accumulate_grad_batches or batch_idx == batches - 1:
                waiting, self.waiting = self.waiting, []
                self.step(waiting)
        return None

    def step(self, batches: Sequence[SearchBatch]) -> None:
        if self.in_posterior:
            self.posterior_step(batches, self.stepper(1))
            return
        if self.best_response:  # unwrapped, so that Lightning counts the weights' steps only
            self.posterior_step(batches, self.stepper(1).optimizer)
        self.weight_step(batches)

    def posterior_step(
        self, batches: Sequence[SearchBatch], optimizer: LightningOptimizer | Optimizer
    ) -> None:
        """One step of α down the negative ELBO, divided by m, or down the mean loss."""
        for batch in batches:
            relaxed = self.sample_path()
            if self.computed == "all":
                relaxed = RelaxedWeights(relaxed.weights)
            with constant(self.weight_list):
                loss = self.loss("valid", batch["valid"], relaxed) + self.divergence()
                loss = loss + self.pressure.term(self.distribution.probabilities(self.logits()))
                accumulate(self.arch_list, gradients(loss, self.arch_list), 1 / len(batches))
        optimizer.step()
        optimizer.zero_grad()
        self.pressure.ascend(self.scores())

    def relax(self) -> RelaxedWeights:
        if self.best_response:
            return self.sample_path()
        path = self.space.one_hot(self.space.sample(self.generator))
        return RelaxedWeights({name: matrix.to(self.device) for name, matrix in path.items()})

    def sample_path(self) -> RelaxedWeights:
        """An architecture drawn from the posterior, whose weights pass gradients to α."""
        noise = {name: uniform_noise(alpha, self.generator) for name, alpha in self.arch.items()}
        weights = self.distribution.sample(self.logits(), noise, self.gumbel_tau)
        return RelaxedWeights(weights, {name: matrix.detach() > 0.5 for name, matrix in weights.items()})

    def logits(self) -> dict[str, Tensor]:
        """α/τ."""
        return {name: alpha / self.tau for name, alpha in self.arch.items()}

    def kl(self) -> Tensor:
        """KL(p_α ‖ uniform)."""
        return self.distribution.kl_to_uniform(self.logits())

    def divergence(self) -> Tensor | float:
        """KL(p_α ‖ uniform)/m, which a best response does without."""
        return 0.0 if self.best_response else self.kl() / self.images

    @property
    def images(self) -> float:
        """m."""
        count = self.likelihood_images
        return self.data.valid.images if count is None else count

    def configure_optimizers(self) -> list[Optimizer]:
        arch = build_optimizer(
            self.arch_list,
            "adam",
            lr=self.arch_lr,
            betas=self.arch_betas,
            weight_decay=self.arch_weight_decay,
        )
        return [*super().configure_optimizers(), arch]

    def scores(self) -> Mapping[str, Tensor]:
        """p_{α_i}(o)."""
        return {name: p.detach() for name, p in self.distribution.probabilities(self.logits()).items()}

    def on_train_epoch_end(self) -> None:
        if self.in_posterior:
            self._log_posterior()
        else:
            super().on_train_epoch_end()

    def epoch_metrics(self) -> Mapping[str, float | Tensor]:
        if not (self.in_posterior or self.best_response):
            return {}
        return {"kl": self.kl().detach(), **self.pressure.metrics(self.scores())}

    def _log_posterior(self) -> None:
        """What `WeightSharing` logs, without the weights' side."""
        self.valid_scores.log(self, "valid")
        self.log_dict(dict(self.epoch_metrics()))
        for name, p in self.scores().items():
            self.log(f"entropy/{name}", entropy(p).mean())
            self.log_dict(self._each_weight(name, p))
