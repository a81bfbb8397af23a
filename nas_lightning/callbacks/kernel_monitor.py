"""The neural tangent kernel while something trains: Lightning's callback for any module."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated, Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor, nn

from nas_lightning.checks import PositiveInt, Seed, at_least, checked
from nas_lightning.data.batches import INPUTS, TARGETS
from nas_lightning.errors import InputError
from nas_lightning.metrics.ntk import ntk
from nas_lightning.metrics.passes.initialise import Scheme, initialise
from nas_lightning.metrics.passes.kernel import Output
from nas_lightning.metrics.passes.kernel_matrix import Kernel
from nas_lightning.metrics.passes.shared import Batch


class NTKMonitor(pl.Callback):
    """Logs trace, κ and λ_min of an empirical kernel on one fixed batch, every few epochs.

    Logged by the first process: `ntk_trace` (√(trace/m)), `ntk_condition`, `ntk_lambda_min` and what it took,
    `ntk_seconds`. One measurement costs about as much as two training steps on its batch; training is the
    same, bit for bit, with and without it. A kernel that cannot be had is said once, and training goes on.

    Args:
        every_n_epochs: how often.
        batch_size: samples of the batch, the first ones of the training data that the callback sees; for
            searches those of the weights' side.
        attribute: the part of the module that is measured (`network` for retraining); None: all of it.
        network: genotype → network; measures the architecture which a search would give now, built anew each
            time with the same random numbers: what changes is the architecture alone.
        scheme: how that network's weights are drawn.
        output: which of the logits' gradients make the kernel, see `metrics.passes.kernel`; `sum` where
            targets are no classes.
        batch: inputs and labels to measure on, in place of the training data's first; or what gives them.
        inputs: training batch → (inputs, labels), where a batch is neither a pair nor a mapping with the
            usual names, see `first_pair`.
        seed: of the network's weights.

    >>> x, y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    >>> monitor = NTKMonitor(attribute="network", batch=(x, y))  # in `pl.Trainer(callbacks=[monitor])`
    >>> module = pl.LightningModule()
    >>> module.network = nn.Linear(3, 2, bias=False)
    >>> bool(torch.isclose(torch.tensor(monitor.measure(module).trace), x.double().square().sum().float()))
    True
    """

    @checked
    def __init__(
        self,
        every_n_epochs: PositiveInt = 1,
        batch_size: Annotated[int, at_least(2)] = 64,
        *,
        attribute: str | None = None,
        network: Callable[[Any], nn.Module] | None = None,
        scheme: Scheme = "lecun",
        output: Output = "true_class",
        batch: Batch | Callable[[], Batch] | None = None,
        inputs: Callable[[Any], Batch] | None = None,
        seed: Seed = 0,
    ) -> None:
        if attribute is not None and network is not None:
            raise InputError("expected attribute or network, one of the two", got="both")
        self.every_n_epochs, self.batch_size = every_n_epochs, batch_size
        self.attribute, self.network, self.scheme = attribute, network, scheme
        self.output, self.seed = output, seed
        self.batch: Batch | None = batch() if callable(batch) else batch
        self.inputs = first_pair if inputs is None else inputs
        self._failed = False

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self.batch is not None or self._failed:
            return
        try:
            x, y = self.inputs(batch)
            self.batch = x[: self.batch_size].detach().clone(), y[: self.batch_size].detach().clone()
        except Exception as error:
            self._give_up(error)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        due = (trainer.current_epoch + 1) % self.every_n_epochs == 0
        if self.batch is None or self._failed or not due or not trainer.is_global_zero:
            return
        start = time.perf_counter()
        try:
            kernel = self.measure(pl_module)
        except Exception as error:  # of whatever network, which trains all the same
            return self._give_up(error)
        values = {
            "ntk_trace": (kernel.trace / len(self.batch[0])) ** 0.5,
            "ntk_condition": kernel.condition,
            "ntk_lambda_min": kernel.lambda_min,
            "ntk_seconds": time.perf_counter() - start,
        }
        pl_module.log_dict(values, rank_zero_only=True)

    def _give_up(self, error: Exception) -> None:
        self._failed = True
        reason = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, InputError):
            reason += "; attribute=… says what is measured, inputs=… on what, output='sum' asks for no labels"
        rank_zero_warn(f"NTKMonitor measures nothing in this run: {reason}")

    def measure(self, pl_module: pl.LightningModule) -> Kernel:
        """The kernel of the network that is watched, as it is now."""
        assert self.batch is not None, "expected a batch: the training has not begun"
        x, y = (part.to(pl_module.device) for part in self.batch)
        if x.is_floating_point():
            x = x.to(next(pl_module.parameters(), x).dtype)
        return ntk(self._network(pl_module), (x, y), output=self.output)

    def _network(self, pl_module: Any) -> nn.Module:
        if self.network is None:
            return pl_module if self.attribute is None else attrgetter(self.attribute)(pl_module)
        with torch.random.fork_rng(devices=[]):  # layers draw their first weights from the global generator
            network = self.network(pl_module.derive()[0]).to(pl_module.device)
        initialise(network, self.scheme, torch.Generator().manual_seed(self.seed))
        return network

    def state_dict(self) -> dict[str, Any]:
        """The batch, so that a search that resumes is measured on the same one."""
        return {} if self.batch is None else {"x": self.batch[0].cpu(), "y": self.batch[1].cpu()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            self.batch = state_dict["x"], state_dict["y"]


def first_pair(batch: Any) -> Batch:
    """The first (inputs, labels) of a batch, whatever holds them.

    Mappings have them under the usual names; sequences are the pair with whatever follows, or hold it in
    their first entry, as those of several loaders do.

    >>> x, y = torch.zeros(2, 3), torch.zeros(2)
    >>> [first_pair(batch)[0] is x for batch in ((x, y), {"valid": (x, y)}, {"pixel_values": x, "labels": y})]
    [True, True, True]
    """
    while isinstance(batch, (Mapping, list, tuple)) and len(batch):
        if isinstance(batch, Mapping):
            names = [next((name for name in known if name in batch), None) for known in (INPUTS, TARGETS)]
            if None not in names and all(getattr(batch[name], "ndim", 0) for name in names):
                return batch[names[0]], batch[names[1]]
            batch = next(iter(batch.values()))
        elif len(batch) >= 2 and all(isinstance(part, Tensor) for part in batch[:2]):
            return batch[0], batch[1]
        else:
            batch = batch[0]
    raise InputError("expected batches of (inputs, labels), or a mapping of them", got=type(batch).__name__)
