"""NESBS: neural ensemble search via Bayesian sampling (Shu 2022, thesis, chapter 5). It finds an ensemble.

One run has three stages (algorithm 5.1):

1. The supernet: every step trains the path of an architecture drawn uniformly, with weights on 70 % of the
   images (section 5.3.2), so that all architectures are trained equally often (appendix B.1).
2. The posterior, weights frozen, on the other images (section 5.3.3):

       max_α E_{A~p_α}[log p(D|A)] − KL(p_α ‖ uniform),   log p(D|A) = −m · mean loss of A        (5.4)

   by straight-through Gumbel samples. m is what decides how far p_α moves from the prior. The likelihood of a
   data set is a product over its images, so m is their number, and p_α becomes sharp; the mean loss, m = 1,
   leaves it all but uniform. Here the negative ELBO is divided by m: it is the mean loss + KL/m.
3. Sets of architectures, sampled and selected at the end of the last epoch (sections 5.2.3 and 5.3.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.optim import Optimizer

from nas_lightning.checks import Finite, NonNegativeFloat, PositiveFloat, PositiveInt, Share, checked
from nas_lightning.data import SearchData
from nas_lightning.ensembles.forward_selection import InheritedWeights, Round
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.nesbs.posterior import Architectures
from nas_lightning.strategies.nesbs.samplers import (
    DeltaSearch,
    Sampler,
    Sampling,
)
from nas_lightning.strategies.oneshot.parts import Relaxed, SearchBatch
from nas_lightning.strategies.oneshot.relaxations import entropy, uniform_noise
from nas_lightning.strategies.oneshot.weight_sharing import WeightSharing
from nas_lightning.training.gradients import accumulate, average, constant, gradients
from nas_lightning.training.optim import build_optimizer

Computed = Literal["all", "sampled"]
_WHERE = "strategy.posterior_share"
_KEY = "nesbs"  # in a checkpoint


class Nesbs(WeightSharing):
    """An ensemble of `size` architectures; before the end of the run, the posterior's mode.

    `rounds_done` holds every set that was tried, as `ensembles.selection.Round`.

    Args:
        space: the search space.
        supernet: its supernet; the thesis has partial=2.
        data: where the validation images come from.
        sampler: how sets of architectures are found; for this and the next seven see `ensembles.samplers`.
        size: members of the ensemble.
        rounds: sets that are tried.
        delta: diversity of SVGD-RD.
        svgd_steps: of SVGD-RD.
        svgd_lr: of SVGD-RD.
        svgd_momentum: of SVGD-RD.
        svgd_bandwidth: of SVGD-RD.
        posterior_share: of the epochs, those at the end that train the posterior, each once over the
            validation images; 0 leaves the posterior uniform.
        best_response: train the posterior beside the supernet, whose paths it draws then (section 5.5.2);
            with posterior_share=0.
        arch_lr: learning rate of the posterior's Adam; the thesis' 0.01 is for its 2,300 steps.
        arch_betas: Adam's.
        arch_weight_decay: of α.
        tau: temperature of the posterior (5.6).
        gumbel_tau: temperature of the straight-through estimator.
        computed: `all` operations enter the gradient by α; with `sampled` only those that were drawn are
            computed, at the cost of a path, and those that were not count as if they changed nothing.
        likelihood_images: m; None: all validation images.
        valid_batches: batches that sets are judged on, of one process; None: all.
        lr_min: what the weights' learning rate decays towards.
        seed: of all that is drawn.
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
        sampler: Sampler = "svgd_rd",
        size: PositiveInt = 3,
        rounds: PositiveInt = 5,
        delta: Finite | DeltaSearch = "grid",
        svgd_steps: PositiveInt = 1000,
        svgd_lr: PositiveFloat = 0.1,
        svgd_momentum: Share = 0.9,
        svgd_bandwidth: PositiveFloat | None = None,
        posterior_share: Share = 0.285,
        best_response: bool = False,
        arch_lr: PositiveFloat = 0.1,
        arch_betas: tuple[Share, Share] = (0.9, 0.999),
        arch_weight_decay: NonNegativeFloat = 3e-4,
        tau: PositiveFloat = 1.0,
        gumbel_tau: PositiveFloat = 1.0,
        computed: Computed = "all",
        likelihood_images: PositiveFloat | None = None,
        valid_batches: PositiveInt | None = None,
        lr_min: NonNegativeFloat = 0.0,
        seed: int = 0,
        **weight_sharing: Any,
    ) -> None:
        super().__init__(space, supernet, lr_min=lr_min, seed=seed, **weight_sharing)
        self.sampling = Sampling(
            sampler, size, rounds, delta, svgd_steps, svgd_lr, svgd_momentum, svgd_bandwidth
        )
        if best_response and posterior_share:
            raise InputError("expected 0 with best_response=true", got=posterior_share, where=_WHERE)
        self.data, self.seed = data, seed
        self.posterior_share, self.best_response = posterior_share, best_response
        self.arch_lr, self.arch_weight_decay = arch_lr, arch_weight_decay
        self.arch_betas = (arch_betas[0], arch_betas[1])
        self.tau, self.gumbel_tau, self.computed = tau, gumbel_tau, computed
        self.likelihood_images, self.valid_batches = likelihood_images, valid_batches
        self.distribution = Architectures(space)
        shapes = {name: group.shape for name, group in space.groups.items()}
        self.arch = nn.ParameterDict({name: torch.zeros(shape) for name, shape in shapes.items()})
        self.arch_list = list(self.arch.parameters())
        self.rounds_done: list[Round] = []

    # Stages

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

    def training_step(self, batch: SearchBatch, batch_idx: int) -> None:
        if not self.in_posterior:
            super().training_step(batch, batch_idx)
            return
        batches = min(len(self.data.valid), int(self.trainer.num_training_batches))
        if batch_idx < batches:  # an epoch of the posterior is one pass over its images
            self.waiting.append(batch)
            if len(self.waiting) == self.accumulate_grad_batches or batch_idx == batches - 1:
                waiting, self.waiting = self.waiting, []
                self.step(waiting)

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
        """One step of α down the negative ELBO, divided by m."""
        for batch in batches:
            relaxed = self.sampled()
            if self.computed == "all":
                relaxed = Relaxed(relaxed.weights)
            with constant(self.weight_list):
                loss = self.loss("valid", batch["valid"], relaxed) + self.kl() / self.images
                accumulate(self.arch_list, gradients(loss, self.arch_list), 1 / len(batches))
        optimizer.step()
        optimizer.zero_grad()

    def relax(self) -> Relaxed:
        if self.best_response:
            return self.sampled()
        path = self.space.one_hot(self.space.sample(self.generator))
        return Relaxed({name: matrix.to(self.device) for name, matrix in path.items()})

    def sampled(self) -> Relaxed:
        """An architecture drawn from the posterior, whose weights pass gradients to α."""
        noise = {name: uniform_noise(alpha, self.generator) for name, alpha in self.arch.items()}
        weights = self.distribution.sample(self.logits(), noise, self.gumbel_tau)
        return Relaxed(weights, {name: matrix.detach() > 0.5 for name, matrix in weights.items()})

    def logits(self) -> dict[str, Tensor]:
        """α/τ."""
        return {name: alpha / self.tau for name, alpha in self.arch.items()}

    def kl(self) -> Tensor:
        """KL(p_α ‖ uniform)."""
        return self.distribution.kl_to_uniform(self.logits())

    @property
    def images(self) -> float:
        """m."""
        found = self.likelihood_images
        return len(self.data.valid.samples) if found is None else found

    def configure_optimizers(self) -> list[Optimizer]:
        arch = build_optimizer(
            self.arch_list,
            "adam",
            lr=self.arch_lr,
            betas=self.arch_betas,
            weight_decay=self.arch_weight_decay,
        )
        return [*super().configure_optimizers(), arch]

    # The ensemble

    def scores(self) -> Mapping[str, Tensor]:
        """p_{α_i}(o)."""
        return {name: p.detach() for name, p in self.distribution.probabilities(self.logits()).items()}

    def derive(self) -> list[Genotype]:
        if not self.rounds_done:
            return [self.space.discretise(self.scores())]
        return list(min(self.rounds_done, key=lambda done: done.loss).members)

    def select(self) -> None:
        """Sample the sets and judge them; what is drawn depends on the seed and the step alone."""
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + self.trainer.global_step)
        world = self.trainer.world_size
        count = len(self.data.valid)
        if self.valid_batches is not None:
            count = min(count, self.valid_batches)
        batches = self.data.valid_batches(count * world)[self.global_rank :: world]
        judge = InheritedWeights(self.space, self.supernet, batches, average)
        logits = {name: alpha.detach().cpu().double() for name, alpha in self.logits().items()}
        tried = self.sampling.tried(judge, self.distribution, logits, generator, self.seed)
        self.rounds_done = list(tried)

    # Hooks

    def on_train_start(self) -> None:
        super().on_train_start()
        self.rounds_done = []

    def on_train_epoch_end(self) -> None:
        if self.in_posterior:
            self._log_posterior()
        else:
            super().on_train_epoch_end()
        if self.current_epoch + 1 == self.trainer.max_epochs or self.trainer.should_stop:
            self.select()
            self._log_rounds()

    def on_train_end(self) -> None:
        if not self.rounds_done:  # stopped within an epoch
            self.select()

    def epoch_metrics(self) -> Mapping[str, float | Tensor]:
        return {"kl": self.kl().detach()} if self.in_posterior or self.best_response else {}

    def _log_posterior(self) -> None:
        """What `WeightSharing` logs, without the weights' side."""
        self.valid_scores.log(self, "valid")
        self.log_dict(dict(self.epoch_metrics()))
        for name, p in self.scores().items():
            self.log(f"entropy/{name}", entropy(p).mean())
            self.log_dict(self._each_weight(name, p))

    def _log_rounds(self) -> None:
        best = min(self.rounds_done, key=lambda done: done.loss)
        self.log_dict({"ensemble_loss": best.loss, "ensemble_accuracy": best.accuracy})
        for number, (loss, accuracy) in enumerate(
            zip(best.member_losses, best.member_accuracies, strict=True), 1
        ):
            self.log_dict({f"members/{number}/loss": loss, f"members/{number}/accuracy": accuracy})
        for number, done in enumerate(self.rounds_done, 1):
            self.log(f"rounds/{number}/loss", done.loss)
            if done.delta is not None:
                self.log(f"rounds/{number}/delta", done.delta)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint[_KEY] = [done.to_dict() for done in self.rounds_done]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.rounds_done = [Round.from_dict(done) for done in checkpoint[_KEY]]
