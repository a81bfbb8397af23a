"""What every strategy keeps to, whichever yaml names it: it fits, derives, repeats itself, and refuses."""

import pytest
import torch
from pytorch_lightning.plugins.precision import MixedPrecision

from nas_lightning.errors import InputError
from nas_lightning.strategies import Strategy
from nas_lightning.strategies.supernet import SupernetStrategy


def test_every_yaml_is_covered(pytestconfig, search):
    names = {path.stem for path in (pytestconfig.rootpath / "conf" / "strategy").glob("[!_]*.yaml")}
    assert len(names) >= 8
    found = {search(name, "nasbench201")[0].label for name in names - {"one_shot"}}
    assert len(found) == len(names) - 1  # `one_shot` without parts of its own is DARTS


def test_fits_and_derives_architectures_of_the_space(
    search, sizes, trainer, epochs, fits, refusal, strategy_name, space_name
):
    if not fits(strategy_name, space_name):
        assert refusal(search, strategy_name, space_name)
        return
    strategy, data = search(strategy_name, space_name)
    assert isinstance(strategy, Strategy)
    before = {name: value.clone() for name, value in strategy.state_dict().items()}
    fit = trainer(epochs(2, strategy_name))
    fit.fit(strategy, data)
    space = strategy.space
    genotypes = strategy.derive()
    assert genotypes
    assert len(set(genotypes)) == len(genotypes)
    for genotype in genotypes:
        space.check(genotype)
        assert space.parse(space.notation(genotype)) == genotype
        network = space.network(genotype, in_channels=3, num_classes=4, **sizes(space_name))
        assert network(torch.zeros(2, 3, 8, 8)).shape == (2, 4)
    for name, matrix in strategy.scores().items():
        assert matrix.shape == space.groups[name].shape
        assert float(matrix.min()) >= 0
        assert not matrix.requires_grad
    assert strategy.derive() == genotypes  # asking changes nothing
    if isinstance(strategy, SupernetStrategy):
        assert fit.global_step == 6  # the weights' steps, whatever else steps
        for name, value in strategy.state_dict().items():
            assert bool(torch.isfinite(value).all()), name
        changed = {
            name for name, value in strategy.state_dict().items() if not torch.equal(value, before[name])
        }
        assert {"supernet.head.weight"} | {name for name in before if name.startswith("arch.")} <= changed


def test_the_same_seed_gives_the_same_bits(search, trainer, epochs, strategy_name):
    runs = []
    for noise in (1, 2):  # from elsewhere must not matter
        strategy, data = search(strategy_name, "nasbench201")
        torch.manual_seed(noise)
        fit = trainer(epochs(2, strategy_name))
        fit.fit(strategy, data)
        metrics = {name: float(value) for name, value in fit.callback_metrics.items()}
        runs.append((strategy.state_dict(), metrics, strategy.derive(), strategy.generator.get_state()))
    one, two = runs
    assert one[0].keys() == two[0].keys()
    assert all(torch.equal(value, two[0][name]) for name, value in one[0].items())
    assert one[1:3] == two[1:3]
    assert torch.equal(one[3], two[3])


def test_another_seed_gives_another_search(search, strategy_name):
    """The seed reaches what a strategy draws, which for most is its start or its paths."""
    one, two = (search(strategy_name, "nasbench201", f"seed={seed}")[0] for seed in (0, 1))
    assert not torch.equal(one.generator.get_state(), two.generator.get_state())


def test_bfloat16(search, trainer, epochs, strategy_name):
    strategy, data = search(strategy_name, "nasbench201")
    trainer(epochs(1, strategy_name), precision="bf16-mixed").fit(strategy, data)
    assert all(bool(torch.isfinite(value).all()) for value in strategy.state_dict().values())
    assert {parameter.dtype for parameter in strategy.parameters()} <= {torch.float32}
    assert strategy.derive()


def test_float16_is_refused(search, trainer, fitted_name):
    strategy, data = search(fitted_name, "nasbench201")
    plugin = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(InputError, match=r"^expected a precision of bf16-mixed, .*, got '16-mixed'"):
        trainer(1, plugins=[plugin]).fit(strategy, data)


def test_compilation_is_refused_where_it_cannot_pay(search, sharing_name):
    if search(sharing_name, "nasbench201")[0].compilable:
        strategy, _ = search(sharing_name, "nasbench201", "strategy.compile=true")
        assert strategy.supernet.backbone.compiled
    else:
        with pytest.raises(InputError, match="expected compile=false, because"):
            search(sharing_name, "nasbench201", "strategy.compile=true")


def test_strategies_that_sample_are_those_that_do_not_compile(search, sharing_name):
    """`compilable` says whether all steps compute the same operations."""
    strategy, _ = search(sharing_name, "nasbench201")
    patterns = set()
    for _ in range(5):
        relaxed = strategy.relax()
        active = relaxed.active or {name: weights != 0 for name, weights in relaxed.weights.items()}
        patterns.add(str(active["cell"].tolist()))
    assert (len(patterns) == 1) == strategy.compilable


def test_no_step_without_a_batch(search, sharing_name):
    with pytest.raises(InputError, match="`accumulate_grad_batches` must be at least 1"):
        search(sharing_name, "nasbench201", "strategy.accumulate_grad_batches=0")
