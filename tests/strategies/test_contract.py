"""The contract of all strategies, by their yamls: they fit, derive, and reject what they cannot do."""

import pytest
import torch
from pytorch_lightning.plugins.precision import MixedPrecision

from nas_lightning.errors import InputError
from nas_lightning.strategies import Strategy
from nas_lightning.strategies.supernet import SupernetStrategy
from tests.strategies.conftest import (
    SHARING,
    SPACES,
    STRATEGIES,
    at_most,
    build_search,
    fit_for,
    quiet_trainer,
)

KINDS = ("darts", "gdas", "random_ws", "nesbs", "nasi", "evolution")
"""A strategy of each implementation."""


def check_search(name, space_name, sizes):
    strategy, data = build_search(name, space_name)
    assert isinstance(strategy, Strategy)
    before = {name: value.clone() for name, value in strategy.state_dict().items()}
    fit = quiet_trainer(at_most(2, name))
    fit.fit(strategy, data)
    space, genotypes = strategy.space, strategy.derive()
    assert genotypes
    assert len(set(genotypes)) == len(genotypes)
    for genotype in genotypes:
        space.check(genotype)
        assert space.parse(space.notation(genotype)) == genotype
    network = space.network(genotypes[0], in_channels=3, num_classes=4, **sizes(space_name))
    assert network(torch.zeros(2, 3, 8, 8)).shape == (2, 4)
    for group, matrix in strategy.scores().items():
        assert matrix.shape == space.groups[group].shape
        assert float(matrix.min()) >= 0
        assert not matrix.requires_grad
    assert strategy.derive() == genotypes  # calling it changes nothing
    if isinstance(strategy, SupernetStrategy):
        assert fit.global_step == 6  # weight steps only
        after = strategy.state_dict()
        assert all(bool(torch.isfinite(value).all()) for value in after.values())
        changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
        assert {"supernet.head.weight"} | {name for name in before if name.startswith("arch.")} <= changed


@pytest.mark.parametrize("number", range(len(STRATEGIES)), ids=STRATEGIES)
def test_fits_and_derives_architectures_of_the_space(number, sizes):
    """In NAS-Bench-201 and in another space; test_supernet has all pairs (slow)."""
    name = STRATEGIES[number]
    check_search(name, "nasbench201", sizes)
    others = [space for space in SPACES if space != "nasbench201" and fit_for(name, space)]
    if others and number % 2:
        check_search(name, others[number % len(others)], sizes)


def test_incompatible_spaces_are_rejected(refusal):
    for name in STRATEGIES:
        for space in [space for space in SPACES if not fit_for(name, space)][:1]:
            assert refusal(build_search, name, space), (name, space)


def test_seeds_differ():
    for name in KINDS:
        one, two = (build_search(name, "nasbench201", f"seed={seed}")[0] for seed in (0, 1))
        assert not torch.equal(one.generator.get_state(), two.generator.get_state())


def test_bfloat16():
    for name in [*SHARING, "nasi", "evolution", "greedy"]:
        strategy, data = build_search(name, "nasbench201")
        quiet_trainer(1, precision="bf16-mixed", limit_train_batches=1).fit(strategy, data)
        assert all(bool(torch.isfinite(value).all()) for value in strategy.state_dict().values()), name
        assert {parameter.dtype for parameter in strategy.parameters()} <= {torch.float32}
        assert strategy.derive()


def test_float16_is_rejected():
    for name in KINDS:
        strategy, data = build_search(name, "nasbench201")
        plugin = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))
        with pytest.raises(InputError, match=r"^`precision` must be one of bf16-mixed.*, got '16-mixed'"):
            quiet_trainer(1, plugins=[plugin]).fit(strategy, data)


def test_compilable_strategies_compute_the_same_operations_in_all_steps():
    for name in SHARING:
        strategy, _ = build_search(name, "nasbench201")
        patterns = set()
        for _ in range(5):
            relaxed = strategy.relax()
            active = relaxed.active or {group: weights != 0 for group, weights in relaxed.weights.items()}
            patterns.add(str(active["cell"].tolist()))
        assert (len(patterns) == 1) == strategy.compilable, name


def test_compile():
    assert build_search("darts", "nasbench201", "strategy.compile=true")[0].supernet.backbone.compiled
    with pytest.raises(InputError, match="`compile` must be false, because"):
        build_search("gdas", "nasbench201", "strategy.compile=true")


def test_accumulate_grad_batches_is_positive():
    with pytest.raises(InputError, match="`accumulate_grad_batches` must be at least 1"):
        build_search("darts", "nasbench201", "strategy.accumulate_grad_batches=0")
