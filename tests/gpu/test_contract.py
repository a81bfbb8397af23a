"""What jobs do on a GPU: they raise nothing, compute the same values, and leave no work to the host.

On a pretended GPU, or with `pytest tests/gpu --device=cuda` (or `mps`) on that of the machine.
"""

import math

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn

from nas_lightning.errors import InputError
from nas_lightning.metrics.base import score
from nas_lightning.metrics.ntk import ntk
from nas_lightning.metrics.pool import score_pool
from nas_lightning.objectives.latency import time_in_turn
from nas_lightning.spaces import Mlp, NasBench201
from nas_lightning.utils.devices import seeded
from tests.gpu.jobs import CELL, check_equal, run_search, run_study, run_training, small_network
from tests.strategies.conftest import SPACES, STRATEGIES, fit_for
from tests.studies.conftest import table  # noqa: F401
from tests.yamls import file, options

ACCELERATORS = {"cuda": "gpu", "mps": "mps"}
ON_HOST = ("strategies/nesbs/svgd.py", "metrics/infinite.py")
"""Products of small float64 matrices that are computed on the CPU, so that all devices agree."""


def check_no_host_work(log):
    """Raise if networks were computed on the host."""
    if log is not None:
        work = {site: n for site, n in log.sites.items() if site[0] == "host_work"}
        assert not {site: n for site, n in work.items() if not site[2].startswith(ON_HOST)}


def check_search(folder, on_gpu, words, kind="cuda", **chosen):
    """Search on the CPU and on the device, and compare."""
    cpu = run_search(folder / "cpu", "cpu", *words, **chosen)
    with on_gpu(kind) as log:
        gpu = run_search(folder / "gpu", ACCELERATORS[kind], *words, **chosen)
    if log is not None:
        check_equal(cpu, gpu)
        if kind == "cuda":
            check_no_host_work(log)
    return log


# Searches and derivations

FAMILIES = [
    ("pr_darts", "darts", ()),
    ("evolution", "nasbench201", ("strategy.evaluation=training",)),
    ("nasi", "nasbench201", ()),
    ("nesbs", "nasbench201", ()),
    ("random", "nasbench201", ()),
    ("one_shot", "nasbench201", ("sampler=gumbel", "freezing=gradient_matching")),
    ("darts", "nasbench201", ("derivation=pruning",)),
    ("darts", "nasbench201", ("derivation=shapley", "derivation.orders=1")),
]


@pytest.mark.parametrize("number", range(len(FAMILIES)))
def test_searches(number, tmp_path, on_gpu):
    strategy, space, words = FAMILIES[number]
    check_search(tmp_path, on_gpu, words, strategy=strategy, space=space)


ON_MPS = [("nesbs", ()), ("hnas", ()), ("one_shot", ("sampler=dirichlet", "freezing=gradient_matching"))]


@pytest.mark.parametrize("number", range(len(ON_MPS)))
def test_searches_on_mps(number, tmp_path, on_gpu):
    strategy, words = ON_MPS[number]
    check_search(tmp_path, on_gpu, words, kind="mps", strategy=strategy)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ACCELERATORS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy(strategy, kind, tmp_path, on_gpu):
    others = [space for space in SPACES if space != "nasbench201" and fit_for(strategy, space)]
    for space in ["nasbench201", *others[:1]]:
        check_search(tmp_path / space, on_gpu, (), kind=kind, strategy=strategy, space=space)


@pytest.mark.slow
@pytest.mark.parametrize("derivation", ["perturbation", "pruning", "zero_cost"])
def test_every_derivation(derivation, tmp_path, on_gpu):
    check_search(tmp_path, on_gpu, (f"derivation={derivation}",))


@pytest.mark.slow
def test_bfloat16(tmp_path, on_gpu):
    for strategy in ("darts", "pr_darts", "nasi", "evolution", "nesbs"):
        with on_gpu("cuda") as log:
            run_search(tmp_path / strategy, "gpu", "trainer.precision=bf16-mixed", strategy=strategy)
        check_no_host_work(log)


# Metrics


def batch():
    random = torch.Generator().manual_seed(1)
    return torch.randn(4, 3, 8, 8, generator=random), torch.tensor([0, 1, 2, 3])


METRICS = {name: instantiate(OmegaConf.load(file("metric", name))) for name in options("metric")}


@pytest.mark.parametrize("kind", ACCELERATORS)
def test_metrics(kind, on_gpu):
    layered = Mlp(layers=3)
    sizes = {"in_channels": 3, "num_classes": 4, "width": 4, "side": 8}
    mlp = layered.network(layered.parse("relu|tanh"), **sizes)
    for network, of_layers in ((small_network(), False), (mlp, True)):
        metrics = {name: metric for name, metric in METRICS.items() if metric.layered_only == of_layers}
        cpu = score(network, batch(), metrics)
        with on_gpu(kind) as log:
            x, y = (part.to(kind) for part in batch())
            gpu = score(network.to(kind), (x, y), metrics)
        for name, value in cpu.items():
            assert math.isclose(gpu[name], value, rel_tol=1e-5 if log else 1e-2), name
        if kind == "cuda":
            check_no_host_work(log)


@pytest.mark.slow
@pytest.mark.parametrize("name", METRICS)
def test_every_metric_alone(name, on_gpu):
    """Others may compute what a metric needs in passing."""
    if METRICS[name].layered_only:
        return
    cpu = score(small_network(), batch(), {name: METRICS[name]})[name]
    with on_gpu("cuda") as log:
        x, y = (part.to("cuda") for part in batch())
        gpu = score(small_network().to("cuda"), (x, y), {name: METRICS[name]})[name]
    assert math.isclose(gpu, cpu, rel_tol=1e-5 if log else 1e-2)
    check_no_host_work(log)


def test_synchronized_batch_norms_are_batch_norms(on_gpu):
    """In a monitor of a distributed training they must not wait for other processes, either."""
    with on_gpu("cuda"):
        x, y = (part.to("cuda") for part in batch())
        network = small_network().to("cuda").train()
        network(x)  # running statistics that differ from the batch's
        expected = ntk(network, (x, y)).trace
        network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
        before = {name: value.clone() for name, value in network.state_dict().items()}
        assert ntk(network, (x, y)).trace == pytest.approx(expected, rel=1e-5)
        assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


# Studies


def check_study(folder, on_gpu, study, *words):
    cpu = run_study(folder / "cpu", "cpu", study, *words)
    with on_gpu("cuda") as log:
        gpu = run_study(folder / "gpu", "gpu", study, *words)
    check_no_host_work(log)
    if log is not None:
        assert log.operations["convolution"] > 10
        assert gpu.numbers == pytest.approx(cpu.numbers, abs=1e-5)


def test_a_study_that_scores_and_trains(tmp_path, on_gpu):
    check_study(tmp_path, on_gpu, "picks")


NEEDS_TABLE = ("correlation", "correlation_settings", "transfer", "ranking")


@pytest.mark.slow
@pytest.mark.parametrize("study", [*NEEDS_TABLE, "short_trainings", "ensembles", "defense", "latency"])
def test_every_study(study, tmp_path, on_gpu, table):  # noqa: F811
    check_study(tmp_path, on_gpu, study, *[f"benchmark.path={table}"] * (study in NEEDS_TABLE))


# Trainings


@pytest.mark.parametrize("words", [(), ("trainer=deterministic", "retrain.ema_decay=0.9")])
def test_trainings(words, tmp_path, on_gpu):
    cpu = run_training(tmp_path / "cpu", "cpu", *words)
    with on_gpu("cuda") as log:
        gpu = run_training(tmp_path / "gpu", "gpu", *words)
    torch.use_deterministic_algorithms(False)
    check_no_host_work(log)
    if log is not None:
        check_equal(cpu, gpu)


def test_segmentation_has_deterministic_losses(on_gpu):
    from nas_lightning.tasks import Segmentation

    task = Segmentation(class_weights=[1.0, 2.0, 3.0], ignore=255)
    random = torch.Generator().manual_seed(0)
    z, y = torch.randn(2, 3, 4, 4, generator=random), torch.randint(3, (2, 4, 4), generator=random)
    y[0, 0, 0] = 255
    expected = task.loss(z, y), task.evaluation_loss(z, y)
    try:
        torch.use_deterministic_algorithms(True)
        with on_gpu("cuda"):
            z, y = z.to("cuda").requires_grad_(), y.to("cuda")
            found = task.loss(z, y), task.evaluation_loss(z, y)
            (found[0] + found[1]).backward()
            assert [loss.item() for loss in found] == pytest.approx([float(loss) for loss in expected])
    finally:
        torch.use_deterministic_algorithms(False)


def test_seeds_of_scores_leave_the_device_alone(on_gpu):
    with on_gpu("cuda"):
        torch.manual_seed(3)
        before = torch.cuda.get_rng_state()
        drawn = []
        for device in (torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 0)):
            with seeded(0, device):
                drawn.append(torch.rand(2, device=device))
            assert torch.equal(torch.cuda.get_rng_state(), before)
        assert torch.equal(drawn[1], drawn[2])


def test_files_of_scores_record_the_device(tmp_path, on_gpu):
    space = NasBench201()
    options = {
        "metrics": {"grad_norm": METRICS["grad_norm"]},
        "path": tmp_path / "pool.csv",
        "progress": False,
    }
    work = space, lambda genotype: small_network(), [space.parse(CELL)], batch()
    score_pool(*work, **options)
    with on_gpu("cuda"), pytest.raises(InputError, match="`device` must be cpu, as in the other lines"):
        score_pool(*work, **options, device=torch.device("cuda", 0))


def test_latency_waits_for_the_device(on_gpu):
    with on_gpu("cuda") as log:
        x = torch.ones(2, device="cuda")
        device = torch.device("cuda", 0)
        times = time_in_turn([lambda: x + x], rounds=2, warmup=1, least_ms=0.01, device=device)
        assert times.shape == (1, 2)
        if log is not None:  # before and after each call except the one to warm up
            assert log.waits["synchronize"] == 2 * (log.operations["add"] - 1)


WAITS = {"darts": 8, "pr_darts": 17, "gdas": 13}
"""Largest number of waits of the host for the device in a step."""


@pytest.mark.parametrize("strategy", WAITS)
def test_waits_of_a_step(strategy, tmp_path, on_gpu):
    waits = []
    for steps in (1, 3):
        with on_gpu("cuda") as log:
            if log is None:
                pytest.skip("a real GPU does not count")
            run_search(
                tmp_path / str(steps), "gpu", f"trainer.limit_train_batches={steps}", strategy=strategy
            )
            waits.append(log.waits.total())
    assert 0 < (waits[1] - waits[0]) / 2 <= WAITS[strategy]
