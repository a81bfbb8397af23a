"""Some hundred steps, whatever they draw: each strategy at its defaults in every space that it takes."""

import pytest
import torch

BATCH = 4
STEPS = 300


@pytest.mark.slow
def test_three_hundred_steps(search, trainer, fits, sharing_name, space_name):
    if not fits(sharing_name, space_name):
        return
    sizes = (f"dataset.train_size={2 * STEPS * BATCH}", f"dataset.batch_size={BATCH}")
    strategy, data = search(sharing_name, space_name, *sizes, "search_data.train_fraction=0.5")
    fit = trainer(1)
    fit.fit(strategy, data)
    assert fit.global_step == STEPS
    assert all(bool(torch.isfinite(value).all()) for value in strategy.state_dict().values())
    for genotype in strategy.derive():
        strategy.space.check(genotype)
