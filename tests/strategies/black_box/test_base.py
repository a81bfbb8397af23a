"""BlackBox: rounds, evaluations by a table or a training, pools; and evolution."""

import json
import logging
import zlib
from functools import partial

import pytest
import torch
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_pre_hook

from nas_lightning.data import Digits, SearchData
from nas_lightning.errors import InputError
from nas_lightning.metrics import Flops, Metric, Params
from nas_lightning.metrics.kernel import Kernel
from nas_lightning.metrics.pool import score_pool
from nas_lightning.objectives.short_training import PLAIN, ShortTraining, ShortTrainingSettings
from nas_lightning.objectives.tables import (
    OracleAccuracy,
    TabularNasBench201,
    ValidationAccuracy,
    all_notations,
    table_accuracy,
)
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.spaces.network import Network
from nas_lightning.strategies import EigenNas, Evolution, Knas, MetricSearch
from nas_lightning.utils.randomness import seed_of_name
from tests.cli.conftest import TINY_SEARCH, run_script

# What searches without a supernet share: the rounds, the evaluations, the label of an oracle.


SPACE = NasBench201()
NETWORK = partial(SPACE.network, in_channels=1, num_classes=3, channels=2, cells=1)


def write_table(path, accuracy, *more):
    """`accuracy(arch)` on CIFAR-10, and further columns `(name, function)`."""
    lines = [f"arch,cifar10,cifar100,imagenet16-120{''.join(f',{name}' for name, _ in more)}"]
    for arch in sorted(all_notations()):
        extra = "".join(f",{function(arch)}" for _, function in more)
        lines.append(f"{arch},{accuracy(arch)},50,40{extra}")
    path.write_text("\n".join(lines) + "\n")
    return TabularNasBench201(path)


def convolutions(arch):
    """An accuracy that is easy to search: how many 3×3 convolutions, with no two equal."""
    return 15 * arch.count("nor_conv_3x3") + zlib.crc32(arch.encode()) / 2**32


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("table") / "test.csv", convolutions)


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    """Validation accuracies that say the opposite of the test accuracies."""
    path = tmp_path_factory.mktemp("table") / "valid.csv"
    return write_table(path, convolutions, ("cifar10-valid-12", lambda arch: 99 - convolutions(arch)))


@pytest.fixture
def search(data, trainer):
    """`search(strategy, rounds, benchmark, …)`: a search of that many rounds on small networks."""

    def run(strategy, rounds, benchmark=None, space=SPACE, network=NETWORK, **options):
        module = strategy(space, network, data(), benchmark, images=4, **options)
        fit = trainer(rounds, limit_train_batches=1)
        fit.fit(module, module.data)
        return module, fit

    return run


def test_one_step_per_round(search):
    module, fit = search(MetricSearch, 3, pool_size=4, pool_per_round=2)
    assert fit.global_step == int(module.rounds) == 3
    assert len(module.scored) == 4 + 2 * 2
    assert fit.callback_metrics["num_scored"] == 8


# Evaluation by a table


def test_accuracies_of_a_table(oracle, validated):
    assert isinstance(table_accuracy(oracle), OracleAccuracy)
    short = table_accuracy(validated)
    assert isinstance(short, ValidationAccuracy)
    assert short.epochs == 12


def test_oracle_metrics_are_named_so(search, oracle):
    _, fit = search(EigenNas, 2, oracle, evaluation="table", pool_size=4)
    accuracies = {name for name in fit.callback_metrics if "accuracy" in name}
    assert accuracies == {"oracle_test_accuracy", "candidate/oracle_test_accuracy"}


def test_an_oracle_in_a_runs_files(tmp_path, monkeypatch, capsys, oracle):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "table.csv", convolutions)
    asked = ("benchmark=nasbench201", "benchmark.path=table.csv", "strategy.evaluation=table")
    small = ("strategy=knas", "strategy.pool_size=4", "trainer.max_epochs=2", "run=a")
    assert run_script("search", *TINY_SEARCH, *asked, *small, "callbacks.history.figures=false") == 0
    facts = json.loads((tmp_path / "a" / "genotype.json").read_text())
    found = convolutions(facts["notation"][0]) / 100
    assert facts["metrics"]["oracle_test_accuracy"] == pytest.approx(found, abs=1e-5)
    assert facts["metrics"]["true_accuracy"] == pytest.approx(found)
    assert "oracle_test_accuracy" in capsys.readouterr().out
    assert "oracle_test_accuracy" in (tmp_path / "a" / "report.html").read_text()
    assert "valid_accuracy" not in facts["metrics"]
    assert (tmp_path / "a" / "pool.csv").read_text().startswith("arch,ntk_frobenius\n")


def test_validation_accuracies_never_read_the_test_column(search, validated):
    """Where the two contradict each other, the best of the one is the worst of the other."""
    module, fit = search(EigenNas, 6, validated, evaluation="table", pool_size=6)
    pool = sorted(module.scored, key=convolutions)
    assert module.space.notation(module.derive()[0]) == pool[0]
    best = fit.callback_metrics["valid_accuracy_12_epochs"]
    assert float(best) == pytest.approx((99 - convolutions(pool[0])) / 100, abs=1e-6)


def test_missing_table_is_rejected(search, refusal):
    message = refusal(lambda: search(EigenNas, 1, evaluation="table"))
    assert "This evaluation needs a table: pass benchmark=nasbench201 benchmark.path=…" in message
    assert "strategy.evaluation=table" in message
    assert "'none', 'training' or 'table'" in refusal(lambda: search(EigenNas, 1, evaluation="tables"))


# Evaluation by training


NASBENCH201 = ShortTrainingSettings(opt="sgd", lr_min=0.0, weight_decay=5e-4, clip=None, augment=True)
SMOOTHED = ShortTrainingSettings(lr_min=0.02, clip=0.1, label_smoothing=0.3)


@pytest.mark.parametrize(
    ("settings", "nesterov", "decay", "rates", "clip", "smoothing"),
    [
        (PLAIN, False, 3e-4, (0.1, 0.0525), 5.0, 0.0),  # half way along the cosine from 0.1 to 0.005
        (NASBENCH201, True, 5e-4, (0.1, 0.05), None, 0.0),
        (SMOOTHED, False, 3e-4, (0.1, 0.06), 0.1, 0.3),
    ],
)
def test_a_short_training_against_a_plain_loop(settings, nesterov, decay, rates, clip, smoothing):
    """Two epochs of two batches, written down; Lightning, loaders and schedules take no part."""
    data = SearchData(Digits(batch_size=64, subset=300, augment=True))
    network = partial(SPACE.network, in_channels=1, num_classes=10, channels=2, cells=1)
    genotype = SPACE.sample(torch.Generator().manual_seed(2))
    seed = seed_of_name(5, SPACE.notation(genotype))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = network(genotype)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=decay, nesterov=nesterov)
    training = ShortTraining(SPACE, network, data, epochs=2, lr=0.1, settings=settings, seed=5)
    for epoch, lr in enumerate(rates):
        optimizer.param_groups[0]["lr"] = lr
        for x, y in training._train(epoch):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y, label_smoothing=smoothing).backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
    net.eval()
    x, y = (torch.cat(parts) for parts in zip(*training._valid(), strict=True))
    with torch.no_grad():
        expected = 100 * float((net(x).argmax(dim=1) == y).float().mean())
    assert len(y) == len(data.valid.samples)
    torch.manual_seed(77)
    state = torch.get_rng_state()
    seen = []
    hook = register_optimizer_step_pre_hook(lambda sgd, *_: seen.append(sgd.param_groups[0]["lr"]))
    assert training(genotype) == pytest.approx(expected, abs=1e-4)
    hook.remove()
    assert seen == pytest.approx([rates[0]] * 2 + [rates[1]] * 2)
    assert torch.equal(torch.get_rng_state(), state)  # and the surroundings are left alone


def test_drop_path_grows_over_a_short_training(monkeypatch):
    """Final rate 0.2 over four epochs: p · e / E (shuyao95/HNAS, darts_space/search.py)."""
    space, rates = DartsSpace(nodes=1), []
    data = SearchData(Digits(batch_size=32, subset=80))
    network = partial(space.network, in_channels=1, num_classes=10, channels=2, cells=3)
    monkeypatch.setattr(Network, "set_drop_path", lambda _, rate: rates.append(rate))
    settings = ShortTrainingSettings(drop_path=0.2)
    genotype = space.sample(torch.Generator().manual_seed(0))
    ShortTraining(space, network, data, epochs=4, settings=settings)(genotype)
    assert rates == pytest.approx([0.0, 0.05, 0.1, 0.15])


def test_augmented_short_trainings_see_what_searches_see():
    """A pass in the order of the loader has its images."""
    training = SearchData(Digits(batch_size=50, subset=300)).train
    loader = [x for x, _ in training.batches(epoch=2, start=0)]
    own = [x for x, _ in training.shuffled_pass(2, 50, training.seed, augment=True)]
    assert all(torch.equal(a, b) for a, b in zip(loader, own, strict=True))
    plain = [x for x, _ in training.shuffled_pass(2, 50, training.seed)]
    assert not any(torch.equal(a, b) for a, b in zip(loader, plain, strict=True))


def test_a_short_training_sees_each_image_of_its_side_once_an_epoch():
    data = SearchData(Digits(batch_size=50, subset=400, augment=False))
    training = ShortTraining(SPACE, NETWORK, data, seed=1)
    epochs = [torch.cat([x for x, _ in training._train(epoch)]) for epoch in (0, 1)]
    rows = [{tuple(image.flatten().tolist()) for image in epoch} for epoch in epochs]
    assert [len(epoch) for epoch in epochs] == [200, 200]
    assert rows[0] == rows[1]
    assert not torch.equal(epochs[0], epochs[1])
    valid = {tuple(x.flatten().tolist()) for batch, _ in training._valid() for x in batch}
    assert not valid & rows[0]


def test_short_training_learns():
    data = SearchData(Digits(batch_size=32))
    network = partial(SPACE.network, in_channels=1, num_classes=10, channels=4, cells=1)
    best = SPACE.parse(
        "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"
    )
    assert ShortTraining(SPACE, network, data, epochs=2)(best) > 60


@pytest.mark.parametrize("options", [{"epochs": 0}, {"lr": 0.0}])
def test_impossible_trainings(refusal, options):
    assert refusal(lambda: ShortTraining(SPACE, NETWORK, None, **options))


def test_an_architecture_is_evaluated_once(search, monkeypatch):
    seen = []

    def counted(self, genotype):
        seen.append(genotype)
        return 50.0

    monkeypatch.setattr(ShortTraining, "__call__", counted)
    module, _ = search(Evolution, 12, evaluation="training", population=2, sample=2)
    assert len(seen) == len(set(seen)) == len(module.evaluated)
    seen.clear()
    search(EigenNas, 6, evaluation="training", pool_size=3)  # more rounds than architectures
    assert len(seen) == 3


# Pools


def test_kernel_metrics(data):
    """The mean diagonal, and ‖K‖_F = √(9 + 2·8 + 144)."""
    kernel = Kernel(torch.tensor([[3.0, 8**0.5], [8**0.5, 12.0]], dtype=torch.float64), precision=1e-7)
    (eigen_nas,) = EigenNas(SPACE, NETWORK, data()).metrics.values()
    (knas,) = Knas(SPACE, NETWORK, data()).metrics.values()
    assert eigen_nas.from_diagonal(kernel.matrix.diagonal(), 2) == pytest.approx((3 + 12) / 2)
    assert knas.from_kernel(kernel, 2) == pytest.approx(13.0)


def test_scores_are_those_of_score_pool(search, tmp_path):
    path = tmp_path / "pool.csv"
    module, _ = search(MetricSearch, 2, pool_size=3, pool_per_round=2, pool=path, seed=4)
    _, batch = module._subject()
    genotypes = [SPACE.parse(notation) for notation in module.scored]
    expected = score_pool(SPACE, NETWORK, genotypes, batch, module.metrics, seed=4, progress=False)
    assert list(module.scored.values()) == expected
    assert len(path.read_text().splitlines()) == 1 + 5
    again, _ = search(MetricSearch, 2, pool_size=3, pool_per_round=2, pool=path, seed=4)
    assert again.scored == module.scored


def test_the_trainers_precision_changes_no_score(data, trainer):
    scored = []
    for precision in ("32-true", "64-true", "bf16-mixed"):
        module = MetricSearch(SPACE, NETWORK, data(), pool_size=4, images=4)
        trainer(1, limit_train_batches=1, precision=precision).fit(module, module.data)
        scored.append(module.scored)
    assert scored[0] == scored[1] == scored[2]
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    ("metrics", "key"),
    [({"params": Params()}, lambda row: row["params"]), ({"flops": Flops()}, lambda row: row["flops"])],
)
def test_the_best_of_the_pool_by_any_metric(search, metrics, key):
    module, _ = search(MetricSearch, 1, pool_size=30, metrics=metrics)
    best = max(module.scored.values(), key=key)
    assert key(module.scored[SPACE.notation(module.derive()[0])]) == key(best)


def test_top_k_then_validation(search, oracle):
    """Against brute force: the pool's k largest by the metric, and of those the best by the table."""
    k = 4
    module, _ = search(EigenNas, k, oracle, evaluation="table", pool_size=15)
    diagonal = {arch: row["ntk_mean_diag"] for arch, row in module.scored.items()}
    top = sorted(diagonal, key=lambda arch: diagonal[arch], reverse=True)[:k]
    assert set(module.evaluated) == set(top)
    assert SPACE.notation(module.derive()[0]) == max(top, key=convolutions)


def test_a_pool_larger_than_the_space_is_the_space(search, monkeypatch):
    from nas_lightning.strategies.black_box import pool as pool_search

    monkeypatch.setattr(pool_search, "_REPEATS", 200)
    space = DartsSpace(nodes=1, ops=["none", "skip_connect", "max_pool_3x3"])
    network = partial(space.network, in_channels=1, num_classes=3, channels=2, cells=3)
    options = {"space": space, "network": network, "metrics": {"flops": Flops()}}
    module, _ = search(MetricSearch, 3, pool_size=100, pool_per_round=5, **options)
    every = {space.sample(torch.Generator().manual_seed(seed)) for seed in range(2000)}
    assert set(module.drawn) == every
    assert len(module.scored) == len(every) < 100


class Nothing(Metric):
    """The worst value for every network."""

    def compute(self, passes):
        return float("nan")


def test_pool_without_finite_scores_is_rejected(search, refusal):
    options = {"metrics": {"nothing": Nothing()}, "evaluation": "training", "pool_size": 2}
    assert "No architecture of the pool has finite scores" in refusal(
        lambda: search(MetricSearch, 1, **options)
    )


@pytest.mark.parametrize("options", [{"pool_size": 0}, {"pool_per_round": -1}, {"workers": 0}, {"images": 1}])
def test_impossible_numbers(refusal, data, options):
    message = refusal(lambda: MetricSearch(SPACE, NETWORK, data(), **options))
    assert f"MetricSearch.{next(iter(options))}" in message


# Evolution


def test_evolution_climbs_where_random_search_does_not(search, oracle):
    """One decision at a time leads up this table: after 150 of 15,625 cells evolution is at its very top."""
    evolved, _ = search(Evolution, 150, oracle, evaluation="table", population=20, sample=10)
    random, _ = search(Evolution, 150, oracle, evaluation="table", population=150)
    best = max(evolved.evaluated.values())
    assert best >= 90
    assert best > max(random.evaluated.values())
    assert SPACE.notation(evolved.derive()[0]).count("nor_conv_3x3") == 6


def test_evolution_against_its_definition(search, oracle):
    """Each child is a neighbor of one that was alive, and the parents come from the last P only."""
    P = 5
    module, _ = search(Evolution, 40, oracle, evaluation="table", population=P, sample=2)
    assert len(module.history) == 40
    for number in range(P, 40):
        alive = module.history[number - P : number]
        child = SPACE.parse(module.history[number])
        assert any(child in SPACE.neighbors(SPACE.parse(parent)) for parent in alive)


def test_evolution_takes_the_best_of_its_sample(search, oracle):
    """With a sample as large as three populations nearly every parent is the best that is alive."""
    P = 4
    module, _ = search(Evolution, 40, oracle, evaluation="table", population=P, sample=60)
    for number in range(P, 40):
        parent = max(module.history[number - P : number], key=convolutions)
        assert SPACE.parse(module.history[number]) in SPACE.neighbors(SPACE.parse(parent))


def test_evolution_by_metrics_needs_no_accuracies(search):
    module, fit = search(Evolution, 12, metrics={"params": Params()}, population=3, sample=3)
    assert not module.evaluated
    assert not [name for name in fit.callback_metrics if "accuracy" in name]
    best = max(row["params"] for row in module.scored.values())
    assert module.scored[SPACE.notation(module.derive()[0])]["params"] == best


def test_impossible_populations(data):
    with pytest.raises(InputError, match="population"):
        Evolution(SPACE, NETWORK, data(), population=0)


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
