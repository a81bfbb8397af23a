"""Two processes with batches of b search as one does with 2b, with our data and with external data."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.strategies.fit_external_data import FORMS, STOP
from tests.yamls import options

# Two processes with batches of b search as one does with 2b, whatever the strategy.


WHO = [(1, 0), (2, 0), (2, 1)]  # world and rank
REPOSITORY = Path(__file__).parents[2]
FAST = [
    "darts nasbench201",
    "darts nasbench201 arch_step=second_order",
    "pr_darts nasbench201 strategy.arch_lr=0.02",
    "random_ws nasbench201",
    *(f"external_data {form}" for form in FORMS),
]
OTHERS = {*options("strategy")} - {"darts", "pr_darts", "random_ws", "random"}
SLOW = [
    *(f"{name} nasbench201" for name in sorted(OTHERS)),  # all but `random`, which has no steps to share
    "darts darts",
    "darts nasbench201 arch_step=second_order strategy.clip=0.05",
    "darts nasbench201 strategy.accumulate_grad_batches=2",
    "gaea nasbench201 arch_step=single_level search_data.train_fraction=1",
    "one_shot nasbench201 sampler=dirichlet perturbation=adversarial regularizer=[path]",
    "one_shot nasbench201 sampler=gumbel edge_weights=edges auxiliary_skip=skip strategy.arch_lr=0.02",
    "one_shot darts sampler=reinmax regularizer=[beta,sparsity] strategy.arch_lr=0.02",
    "one_shot nasbench201 sampler=simplex perturbation=random arch_step=second_order",
    "one_shot nasbench201 sampler=concrete early_stop=ranking selection=candidates"
    " strategy.selection.candidates=5",
    "one_shot nasbench201 sampler=gumbel regularizer=[lambda] freezing=gradient_matching"
    " strategy.freezing.steps=2",
    "drnas nasbench201 edge_weights=widening strategy.edge_weights.stages=[2,1]",
    "gdas darts strategy.arch_lr=0.02",
    "pr_darts darts strategy.arch_lr=0.02",
]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """`results(searches)`: for each {(world, rank): the results of the process}; fitted once."""
    found = {}

    def get(searches):
        if tuple(searches) not in found:
            folder = tmp_path_factory.mktemp("processes")
            fit(folder, searches)
            found[tuple(searches)] = [
                {who: torch.load(folder / "{}_{}_{}".format(number, *who)) for who in WHO}
                for number in range(len(searches))
            ]
        return found[tuple(searches)]

    return get


def fit(folder, searches, program="tests.strategies.fit_as_process", who=WHO):
    """One process alone and two together, side by side."""
    command = [sys.executable, "-m", program, str(folder), *searches]
    port = str(free_port())
    running, pipe = [], {"cwd": REPOSITORY, "stderr": subprocess.PIPE, "text": True}
    for world, rank in who:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if world > 1:  # as torchrun would
            environment |= {
                "TORCHELASTIC_RUN_ID": "test",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "GROUP_RANK": "0",
                "WORLD_SIZE": str(world),
                "LOCAL_WORLD_SIZE": str(world),
            }
        running.append(subprocess.Popen(command, env=environment, **pipe))
    errors = [process.communicate(timeout=300)[1] for process in running]
    failed = [error for process, error in zip(running, errors, strict=True) if process.returncode]
    assert not failed, failed[0][-2000:]


@pytest.fixture(
    params=[
        *(pytest.param((FAST, number), id=search) for number, search in enumerate(FAST[: -len(FORMS)])),
        *(
            pytest.param((SLOW, number), id=search, marks=pytest.mark.slow)
            for number, search in enumerate(SLOW)
        ),
    ]
)
def result(request, results):
    searches, number = request.param
    return results(searches)[number]


def test_both_ranks_hold_the_same_bits(result):
    one, two = result[2, 0], result[2, 1]
    assert all(torch.equal(value, two["weights"][name]) for name, value in one["weights"].items())
    assert all(torch.equal(value, two["scores"][name]) for name, value in one["scores"].items())
    assert one["genotypes"] == two["genotypes"]
    assert one["metrics"] == two["metrics"]
    assert torch.equal(one["generator"], two["generator"])


def test_two_processes_equal_one(result):
    one, two = result[1, 0], result[2, 0]
    for name, value in one["weights"].items():
        torch.testing.assert_close(
            two["weights"][name], value, rtol=0, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert one["genotypes"] == two["genotypes"]
    assert two["metrics"] == pytest.approx(one["metrics"], rel=1e-5)


def test_shared_parameters_moved(result):
    """Equality would say nothing of parameters that stayed where they were."""
    one = result[1, 0]
    arch = [name for name in one["weights"] if name.startswith("arch.")]
    others = [name for name in ("supernet.head.bias", "rounds") if name in one["weights"]]
    assert arch or others
    for name in arch or others:
        assert float((one["weights"][name] - one["start"][name]).abs().max()) > 1e-4, name


# Two processes share external data and give the results of one with batches of twice the size.

KINDS = ("search", "training")


@pytest.fixture
def external_data_results(results):
    """By form of the data: the results for each (world, rank)."""
    return dict(zip(FORMS, results(FAST)[-len(FORMS) :], strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_external_data_two_processes_equal_one(form, kind, external_data_results):
    alone, first, second = (external_data_results[form][who][kind] for who in WHO)
    for name, value in alone["whole"].items():
        assert torch.equal(first["whole"][name], second["whole"][name]), name
        torch.testing.assert_close(first["whole"][name], value, rtol=1e-9, atol=1e-12)
    assert first["whole metrics"] == second["whole metrics"]
    assert first["whole metrics"] == pytest.approx(alone["whole metrics"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_no_image_is_seen_twice_and_none_is_left_out(form, kind, external_data_results):
    alone, first, second = (external_data_results[form][who][kind]["whole images"] for who in WHO)
    assert len(alone) == len(first) == len(second) == 8
    for one, two, whole in zip(first, second, alone, strict=True):
        assert torch.equal(torch.cat([one, two]).sort()[0], whole.sort()[0])
    assert len(torch.cat(alone[:4]).unique()) == 32


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_external_data_resume_within_an_epoch(form, kind, who, external_data_results):
    end = external_data_results[form][who][kind]
    assert len(end["resumed images"]) == 8 - STOP
    assert all(map(torch.equal, end["resumed images"], end["whole images"][STOP:]))
    for name, value in end["whole"].items():
        assert torch.equal(end["resumed"][name], value), name
    before, after = end["whole metrics"], end["resumed metrics"]
    names = set(before)
    if who[0] > 1:  # of the interrupted epoch's means a checkpoint has the first process' part
        names = {name for name in names if kind == "training" and name.startswith("val")}
    assert {name: after[name] for name in names} == {name: before[name] for name in names}
