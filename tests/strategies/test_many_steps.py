"""Some hundred steps, whatever they draw: each strategy at its defaults in every space that it takes."""

import pytest
import torch

from nas_lightning.strategies.black_box.base import BlackBox
from tests.strategies.conftest import config

BATCH = 4
STEPS = 300


def check_end(strategy):
    """All that it has is finite, and what it derives is an architecture of its space."""
    assert all(bool(torch.isfinite(value).all()) for value in strategy.state_dict().values())
    genotypes = strategy.derive()
    assert genotypes
    for genotype in genotypes:
        strategy.space.check(genotype)


@pytest.mark.slow
def test_three_hundred_steps(search, trainer, fits, sharing_name, space_name):
    if not fits(sharing_name, space_name):
        pytest.skip("the strategy refuses the space, which test_contract holds it to")
    sizes = (f"dataset.train_size={2 * STEPS * BATCH}", f"dataset.batch_size={BATCH}")
    strategy, data = search(sharing_name, space_name, *sizes, "search_data.train_fraction=0.5")
    fit = trainer(1)
    fit.fit(strategy, data)
    assert fit.global_step == STEPS
    check_end(strategy)


@pytest.mark.filterwarnings("ignore:metrics disagree with themselves")  # as they do on so small networks
@pytest.mark.slow
def test_all_rounds_of_a_search_without_shared_weights(search, trainer, fits, alone_name, space_name):
    """As many as its yaml has; NASI, whose step is a sampled architecture, as many as the others."""
    if not fits(alone_name, space_name):
        pytest.skip("the strategy refuses the space, which test_contract holds it to")
    settings = config(alone_name, space_name).trainer
    batches = settings.limit_train_batches
    sizes = (f"dataset.train_size={max(24, 2 * batches * BATCH)}", f"dataset.batch_size={BATCH}")
    strategy, data = search(alone_name, space_name, *sizes, "search_data.train_fraction=0.5")
    rounds = settings.max_epochs if isinstance(strategy, BlackBox) else STEPS // batches
    fit = trainer(rounds, limit_train_batches=batches)
    fit.fit(strategy, data)
    assert fit.global_step == rounds * batches
    check_end(strategy)
