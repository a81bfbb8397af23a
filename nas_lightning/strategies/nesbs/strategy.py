"""NESBS: neural ensemble search by Bayesian sampling (Shu 2022, thesis, chapter 5).

One run has three stages (algorithm 5.1):

1. The supernet: every step trains the path of a random architecture, with weights on 70 % of the images
   (section 5.3.2), so that all architectures are trained equally often (appendix B.1).
2. The posterior on the other images, with frozen weights (section 5.3.3):

       max_α E_{A~p_α}[log p(D|A)] − KL(p_α ‖ uniform),   log p(D|A) = −m · mean loss of A        (5.4)

   by straight-through Gumbel samples. m decides how far p_α moves from the prior. The likelihood of a data
   set is a product over its images, so m is their number, and p_α becomes sharp; with the mean loss, m = 1,
   it stays almost uniform. Here the negative ELBO is divided by m: it is the mean loss + KL/m.
3. Sets of architectures, sampled and selected at the end of the last epoch (sections 5.2.3 and 5.3.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.optim import Optimizer

from nas_lightning.data import SearchData
from nas_lightning.data.labels import class_labels
from nas_lightning.data.search import check_search_data, read_sides
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives.inherited import InheritedWeights, Round
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.nesbs.posterior import Architectures
from nas_lightning.strategies.nesbs.samplers import DeltaSearch, Sampler, Sampling
from nas_lightning.strategies.nesbs.svgd import Variance
from nas_lightning.strategies.one_shot.parts import RelaxedWeights, SearchBatch
from nas_lightning.strategies.one_shot.relaxations import entropy, uniform_noise
from nas_lightning.strategies.supernet import LimitPressure, SupernetStrategy
from nas_lightning.tasks import check_classes
from nas_lightning.training.gradients import accumulate, average, constant, gradients
from nas_lightning.training.optimizers import build_optimizer
from nas_lightning.training.run_length import deadline_of, is_last_epoch, is_out_of_time
from nas_lightning.validation import (
    Finite,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Seed,
    Share,
    checked,
)

# Stages 1 and 2: a supernet trained on uniform paths, and the posterior of paths.

Computed = Literal["all", "sampled"]
_WHERE = "strategy.posterior_share"


class PosteriorTraining(SupernetStrategy):
    """Trains a supernet and, in the last epochs or together with it, the posterior p_α of its architectures.

    Args:
        space: the search space.
        supernet: its supernet.
        data: the images.
        posterior_share: share of the epochs, at the end, that train the posterior, each once over the
            validation images; 0 leaves the posterior uniform.
        best_response: train the posterior together with the supernet, whose paths it then samples, without
            the KL term of (5.4) (sections 5.2.2 and 5.5.2); with posterior_share=0.
        arch_lr: learning rate of the posterior's Adam; the thesis' 0.01 is for its 2,300 steps.
        arch_betas: coefficients of Adam's running averages.
        arch_weight_decay: weight decay of α.
        tau: temperature of the posterior (5.6).
        gumbel_tau: temperature of the straight-through estimator.
        computed: `all`: all operations enter the gradient by α; `sampled`: only the sampled ones are
            computed, at the cost of one path, and the others have no gradient.
        likelihood_images: m; None: all validation images. A best response has none.
        **options: see `SupernetStrategy`.
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
        **options: Any,
    ) -> None:
        super().__init__(space, supernet, **options)
        if best_response and posterior_share:
            raise InputError(
                "`posterior_share` must be 0 with best_response=true", got=posterior_share, where=_WHERE
            )
        if best_response and likelihood_images is not None:
            where = "strategy.likelihood_images"
            raise InputError(
                "`likelihood_images` must be null with best_response=true", got=likelihood_images, where=where
            )
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
        """The number of epochs that train the posterior; at least one is left for the supernet."""
        return min(round(self.posterior_share * super().epochs), super().epochs - 1)

    @property
    def epochs(self) -> int:
        """The epochs of the supernet, which its learning rate follows."""
        return super().epochs - self.posterior_epochs

    @property
    def in_posterior(self) -> bool:
        """Whether this epoch trains the posterior."""
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
        """Take one step of α on the negative ELBO divided by m, or on the mean loss."""
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
        """Sample an architecture from the posterior; its weights pass gradients to α."""
        noise = {name: uniform_noise(alpha, self.generator) for name, alpha in self.arch.items()}
        weights = self.distribution.sample(self.logits(), noise, self.gumbel_tau)
        return RelaxedWeights(weights, {name: matrix.detach() > 0.5 for name, matrix in weights.items()})

    def logits(self) -> dict[str, Tensor]:
        """Return α/τ."""
        return {name: alpha / self.tau for name, alpha in self.arch.items()}

    def kl(self) -> Tensor:
        """Return KL(p_α ‖ uniform)."""
        return self.distribution.kl_to_uniform(self.logits())

    def divergence(self) -> Tensor | float:
        """Return KL(p_α ‖ uniform)/m; a best response has none."""
        return 0.0 if self.best_response else self.kl() / self.images

    @property
    def images(self) -> float:
        """m, the number of images in the likelihood."""
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
        """Return p_{α_i}(o)."""
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
        """Log the metrics of `SupernetStrategy` without those of the weights."""
        self.valid_scores.log(self, "valid")
        self.log_dict(dict(self.epoch_metrics()))
        for name, p in self.scores().items():
            self.log(f"entropy/{name}", entropy(p).mean())


_KEY = "nesbs"  # in a checkpoint


class Nesbs(PosteriorTraining):
    """NESBS: an ensemble of `size` architectures; before the end of the run, the posterior's mode.

    `rounds_done` has every judged set as a `Round`.

    Args:
        space: the search space.
        supernet: its supernet; the thesis has partial=2.
        data: the images.
        sampler: how sets of architectures are found; for this and the next eight see `Sampling`.
        size: number of members of the ensemble.
        rounds: number of sets.
        delta: diversity δ of SVGD-RD.
        svgd_steps: number of steps of SVGD-RD.
        svgd_lr: step size of SVGD-RD.
        svgd_momentum: momentum of SVGD-RD.
        svgd_bandwidth: kernel bandwidth of SVGD-RD.
        svgd_variance: variance of the Gaussians of SVGD-RD.
        valid_batches: number of batches per set and process; None: all.
        lr_min: learning rate of the weights at the end of the schedule.
        seed: seed of all random numbers.
        **training: see `PosteriorTraining` and `SupernetStrategy`.

    >>> from nas_lightning.data import Digits, SearchData
    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> supernet = space.supernet(in_channels=1, num_classes=10, channels=4, cells=1)
    >>> search = Nesbs(space, supernet, SearchData(Digits()), size=5, sampler="monte_carlo")
    >>> search.sampling.size, search.rounds_done, len(search.derive())
    (5, [], 1)
    """

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
        svgd_variance: Variance = "operations",
        valid_batches: PositiveInt | None = None,
        lr_min: NonNegativeFloat = 0.0,
        seed: Seed = 0,
        **training: Any,
    ) -> None:
        super().__init__(space, supernet, data, lr_min=lr_min, seed=seed, **training)
        self.sampling = Sampling(
            sampler, size, rounds, delta, svgd_steps, svgd_lr, svgd_momentum, svgd_bandwidth, svgd_variance
        )
        self.seed, self.valid_batches = seed, valid_batches
        self.rounds_done: list[Round] = []

    # The ensemble

    def derive(self) -> list[Genotype]:
        if not self.rounds_done:
            return [self.space.discretize(self.scores())]
        return list(min(self.rounds_done, key=lambda done: done.loss).members)

    def select(self) -> None:
        """Sample the sets and judge them; the draws depend only on the seed and the step."""
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + self.trainer.global_step)
        self.rounds_done = []
        for done in self.sampling.judge_sets(
            self._judge(), self.distribution, self._logits_on_cpu(), generator, self.seed
        ):
            self.rounds_done.append(done)
            if is_out_of_time(self.trainer):
                break

    def _judge(self) -> InheritedWeights:
        world = self.trainer.world_size
        count = self.data.valid_count
        if self.valid_batches is not None:
            count = min(count, self.valid_batches)
        batches = self.data.valid_batches(count * world)[self.global_rank :: world]
        return InheritedWeights(self.space, self.supernet, batches, average)

    def _logits_on_cpu(self) -> dict[str, torch.Tensor]:
        return {name: alpha.detach().cpu().double() for name, alpha in self.logits().items()}

    # Hooks

    def on_train_start(self) -> None:
        super().on_train_start()
        self.rounds_done = []
        deadline = deadline_of(self.trainer)
        if deadline is not None:
            deadline.expect(
                self.sampling.expected_seconds(self._judge(), self.distribution, self._logits_on_cpu())
            )

    def on_train_epoch_end(self) -> None:
        super().on_train_epoch_end()
        if is_last_epoch(self.trainer):
            self.select()
            self._log_rounds()

    def on_train_end(self) -> None:
        if not self.rounds_done:  # stopped within an epoch
            self.select()

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
