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

from typing import Any

import torch

from nas_lightning.checks import Finite, NonNegativeFloat, PositiveFloat, PositiveInt, Seed, Share, checked
from nas_lightning.data import SearchData
from nas_lightning.ensembles.forward_selection import InheritedWeights, Round
from nas_lightning.genotype import Genotype
from nas_lightning.spaces.base import SearchSpace
from nas_lightning.spaces.supernet import Supernet
from nas_lightning.strategies.nesbs.samplers import (
    DeltaSearch,
    Sampler,
    Sampling,
)
from nas_lightning.strategies.nesbs.stages import PosteriorTraining
from nas_lightning.strategies.nesbs.svgd import Variance
from nas_lightning.training.gradients import average
from nas_lightning.training.horizon import deadline_of, is_last_epoch, is_out_of_time

_KEY = "nesbs"  # in a checkpoint


class Nesbs(PosteriorTraining):
    """An ensemble of `size` architectures; before the end of the run, the posterior's mode.

    `rounds_done` holds every set that was tried, as `ensembles.forward_selection.Round`.

    Args:
        space: the search space.
        supernet: its supernet; the thesis has partial=2.
        data: where the validation images come from.
        sampler: how sets of architectures are found; for this and the next eight see `nesbs.samplers`.
        size: members of the ensemble.
        rounds: sets that are tried.
        delta: diversity of SVGD-RD.
        svgd_steps: of SVGD-RD.
        svgd_lr: of SVGD-RD.
        svgd_momentum: of SVGD-RD.
        svgd_bandwidth: of SVGD-RD.
        svgd_variance: of SVGD-RD.
        valid_batches: batches that sets are judged on, of one process; None: all.
        lr_min: what the weights' learning rate decays towards.
        seed: of all that is drawn.
        **training: see `PosteriorTraining` and `WeightSharing`.

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
            return [self.space.discretise(self.scores())]
        return list(min(self.rounds_done, key=lambda done: done.loss).members)

    def select(self) -> None:
        """Sample the sets and judge them; what is drawn depends on the seed and the step alone."""
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
