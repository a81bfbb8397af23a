"""The callback logs what theorem 1 says of the strategy's scores, in every strategy that has some."""

import pytest
import pytorch_lightning as pl
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from nas_lightning.callbacks.monitors import ConvergenceRate
from nas_lightning.data import Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.options import config_folder
from nas_lightning.spaces import Mlp, NasBench201
from nas_lightning.strategies import Darts, PRDarts, RandomWS
from nas_lightning.strategies.one_shot.convergence_rate import convergence_rate


def fit(strategy, callback):
    data = SearchData(Fake(shape=(1, 8, 8), num_classes=3, train_size=16, test_size=4, batch_size=4))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        max_epochs=1, callbacks=[callback], accelerator="cpu", enable_checkpointing=False, **quiet
    )
    trainer.fit(strategy, data)
    return trainer.callback_metrics


@pytest.mark.parametrize("kind", [Darts, PRDarts])
def test_logged_numbers(kind):
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        callback = instantiate(compose("callbacks/convergence_rate").callbacks.convergence_rate)
    space = NasBench201()
    strategy = kind(space, space.supernet(in_channels=1, num_classes=3, channels=2, cells=1), arch_lr=0.3)
    logged = fit(strategy, callback)
    scores = strategy.scores()["cell"].clone()
    scores[:, 0] = 0.0  # none
    shares = scores / scores.sum(dim=1, keepdim=True)
    rate = convergence_rate(shares, space.groups["cell"])
    # equal shares: three edges of two convolutions each, behind 0, 1 and 2 edges with a skip
    equal = 0.5**2 * (1 + 0.25**2 + 0.25**4)
    assert float(logged["convergence_rate/cell"]) == pytest.approx(float(rate.value) / equal, rel=1e-5)
    assert float(logged["convergence_rate/skip_cell"]) == pytest.approx(float(shares[:3, 1].mean()))
    assert float(logged["convergence_rate/conv_cell"]) == pytest.approx(float(shares[3:, 2:4].sum(1).mean()))


def test_refused_before_the_search():
    space = NasBench201()
    supernet = space.supernet(in_channels=1, num_classes=3, channels=2, cells=1)
    data = SearchData(Fake(shape=(1, 8, 8), num_classes=3, train_size=16, test_size=4, batch_size=4))
    with pytest.raises(InputError, match="expected a strategy that scores operations, got 'RandomWS'"):
        fit(RandomWS(space, supernet, data), ConvergenceRate())
    space = Mlp(layers=3)
    with pytest.raises(InputError, match="skips and convolutions on edges"):
        fit(Darts(space, space.supernet(in_channels=1, num_classes=3, width=4)), ConvergenceRate())
