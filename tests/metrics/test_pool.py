"""Pools: the same bits whatever the processes, the order and the interruptions."""

import gc
import json
import math
import os
import signal
import subprocess
import sys
import weakref
from functools import partial

import pytest
import torch

from nas_lightning.metrics import Flops, GradNorm, NTKSqrtMeanDiagonal, Params, score
from nas_lightning.metrics.pool import score_pool
from nas_lightning.metrics.recording import initialize
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.spaces.constrained import Bounds, limit_space
from nas_lightning.utils.randomness import seed_of_name

SPACE = NasBench201()
NETWORK = partial(SPACE.network, in_channels=1, num_classes=3, channels=2, cells=1)
METRICS = {"norm": GradNorm(), "trace": NTKSqrtMeanDiagonal(), "params": Params()}


def sample(count, space=SPACE):
    generator = torch.Generator().manual_seed(1)
    return [space.sample(generator) for _ in range(count)]


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 1, 8, 8, generator=generator), torch.tensor([0, 1, 2, 0])


@pytest.fixture
def run(batch):
    """`run(genotypes, …)`: scores of the small networks."""

    def scores(genotypes, metrics=METRICS, network=NETWORK, batch=batch, **options):
        return score_pool(SPACE, network, genotypes, batch, metrics, progress=False, **options)

    return scores


def test_file_continues_with_other_limits(run, batch, tmp_path):
    path, genotypes = tmp_path / "pool.csv", sample(2)
    before = run(genotypes, path=path)
    bounds = Bounds(
        SPACE, {"convs": 0.5}, lambda genotype: {"convs": sum("conv" in op for op in genotype.ops)}
    )
    space = limit_space(SPACE, bounds)
    assert score_pool(space, NETWORK, genotypes, batch, METRICS, path=path, progress=False) == before


def test_against_a_plain_loop(run, batch):
    genotypes = sample(4)
    expected = []
    for genotype in genotypes:
        network = NETWORK(genotype)
        seed = seed_of_name(7, SPACE.notation(genotype))
        initialize(network, "kaiming", torch.Generator().manual_seed(seed))
        expected.append(score(network, batch, METRICS))
    assert run(genotypes, seed=7, scheme="kaiming") == expected
    assert run(genotypes, seed=8, scheme="kaiming") != expected
    assert run(genotypes, seed=7) != expected


def test_seeds_are_stable():
    """What `sha256("0 a")` begins with, as `sha256sum` prints it."""
    digest = subprocess.run(["sha256sum"], input=b"0 a", capture_output=True, check=True).stdout
    assert seed_of_name(0, "a") == int(digest[:16], 16) >> 1


def test_scores_do_not_depend_on_order_and_other_architectures(run):
    genotypes = sample(5)
    scores = run(genotypes)
    assert run(genotypes[::-1]) == scores[::-1]
    assert run(genotypes[2:3]) == scores[2:3]
    assert run([genotypes[0], genotypes[1], genotypes[0]]) == [scores[0], scores[1], scores[0]]
    assert run([]) == []


def test_scoring_preserves_rng_state(run):
    torch.manual_seed(3)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    one = run(sample(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    torch.manual_seed(4)
    assert run(sample(2)) == one


def test_processes_equal_one(run, tmp_path):
    genotypes = sample(6)
    alone = run(genotypes)
    assert run(genotypes, workers=2, path=tmp_path / "pool.csv") == alone
    assert run(genotypes, path=tmp_path / "pool.csv") == alone  # read, not scored
    assert len((tmp_path / "pool.csv").read_text().splitlines()) == 1 + len(set(genotypes))


def test_pool_resumes(run, tmp_path):
    genotypes, path = sample(6), tmp_path / "new" / "pool.csv"
    whole = run(genotypes)
    seen = []

    def counted(genotype):
        seen.append(genotype)
        return NETWORK(genotype)

    assert run(genotypes[:4], path=path, network=counted) == whole[:4]
    seen.clear()
    content = path.read_bytes()
    path.write_bytes(content[:-5])  # killed while it wrote the fourth
    assert run(genotypes, path=path, network=counted) == whole
    assert seen[1:] == genotypes[3:]  # the first is the example that settings are taken from
    assert path.read_bytes().startswith(content)
    for size in (3, 0):  # killed while it wrote the header
        path.write_bytes(content[:size])
        assert run(genotypes[:2], path=path) == whole[:2]


@pytest.mark.slow
def test_file_of_a_killed_process_resumes(run, tmp_path):
    path = tmp_path / "pool.csv"
    code = f"""
import sys; sys.path.insert(0, {str(__file__.rpartition("/")[0])!r})
import torch
torch.set_num_threads(1)
from test_pool import METRICS, NETWORK, SPACE, sample
from nas_lightning.metrics.pool import score_pool
batch = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
print("ready", flush=True)
score_pool(SPACE, NETWORK, sample(2000), batch, METRICS, path={str(path)!r}, progress=False)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    while not path.is_file() or path.read_bytes().count(b"\n") < 4:
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    genotypes = sample(2000)
    done = path.read_bytes().count(b"\n") - 1
    pool = genotypes[: done + 2]
    assert run(pool, path=path) == run(pool)


def test_infinities_survive_the_file(run, tmp_path):
    none = SPACE.parse("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")
    path = tmp_path / "pool.csv"
    for _ in range(2):
        (scores,) = run([none], path=path)
        assert scores["norm"] == -math.inf
        assert scores["params"] > 0


def test_notations_with_commas(batch, tmp_path):
    space = DartsSpace(nodes=1)
    network = partial(space.network, in_channels=1, num_classes=3, channels=2, cells=2)
    genotypes, path = sample(2, space), tmp_path / "pool.csv"
    for _ in range(2):
        scores = score_pool(space, network, genotypes, batch, {"flops": Flops()}, path=path, progress=False)
        assert len(scores) == 2


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"seed": 1}, "seed"),
        ({"scheme": "xavier"}, "scheme"),
        ({"metrics": {**METRICS, "norm": GradNorm(per_layer=False)}}, "metrics"),
        ({"metrics": {"params": Params()}}, "metrics"),
        ({"network": partial(NETWORK, channels=4)}, "network"),
        ({"batch": (torch.zeros(2, 1, 8, 8), torch.tensor([0, 1]))}, "batch"),
    ],
)
def test_other_settings_raise(run, refusal, tmp_path, options, key):
    path = tmp_path / "pool.csv"
    run(sample(1), path=path)
    content = path.read_bytes()
    assert refusal(lambda: run(sample(2), path=path, **options)).startswith(f"`{key}` must be ")
    assert path.read_bytes() == content


def test_wrong_files_raise(run, refusal, tmp_path):
    path, facts = tmp_path / "pool.csv", tmp_path / "pool.csv.json"
    run(sample(2), path=path)
    content, settings = path.read_text(), facts.read_text()
    wrong = ["a,b\n", content + "x,1\n", content + "x,1,2,three\n", content + "\n", content + "x,1,2,3,4\n"]
    for text in wrong:
        path.write_text(text)
        assert refusal(lambda: run(sample(2), path=path))
        assert path.read_text() == text
    path.write_bytes(b"\xff\xfe\n")
    assert refusal(lambda: run(sample(2), path=path))
    path.write_text(content)
    for text in ("", "[]", "{", json.dumps({**json.loads(settings), "seed": "0"})):
        facts.write_text(text)
        assert refusal(lambda: run(sample(2), path=path))
    facts.unlink()
    assert "has no file of settings" in refusal(lambda: run(sample(2), path=path))
    assert path.read_text() == content


@pytest.mark.parametrize("options", [{"workers": 0}, {"threads": 0}, {"backend": "rays"}, {"metrics": {}}])
def test_impossible_options(run, refusal, options):
    assert refusal(lambda: run(sample(1), **options))


def test_ray(run, refusal):
    """Where it is installed the same bits, otherwise one line."""
    try:
        import ray
    except ModuleNotFoundError:
        assert "This backend needs the package ray" in refusal(lambda: run(sample(1), backend="ray"))
        return
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert run(sample(3), backend="ray") == run(sample(3))
    finally:
        ray.shutdown()


def test_counts_use_the_meta_device(run):
    """Only what was asked for is computed: counted are the weights that networks come with."""
    weights = []

    def network(genotype):
        built = NETWORK(genotype)
        weights.append(sum(p.numel() for p in built.parameters() if not p.is_meta))
        return built

    genotypes = sample(4)
    state = torch.get_rng_state()
    counted = run(genotypes, {"params": Params(), "flops": Flops()}, network)
    assert weights == [0] * 4
    assert torch.equal(torch.get_rng_state(), state)
    weights.clear()
    whole = run(genotypes, {"params": Params(), "flops": Flops(), "norm": GradNorm()}, network)
    assert all(weights)
    assert counted == [{name: scores[name] for name in ("params", "flops")} for scores in whole]


def test_network_that_needs_values_is_counted_on_the_cpu(run):
    class Deciding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 3)

        def forward(self, x):
            return self.layer(x.flatten(1)) if float(x.sum()) else x

    assert run(sample(1), {"flops": Flops()}, lambda genotype: Deciding()) == [{"flops": 192.0}]


def test_network_whose_constructor_reads_weights_is_counted_on_the_cpu(run):
    class Reading(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 3)
            self.largest = float(self.layer.weight.detach().numpy().max())

    assert run(sample(1), {"params": Params()}, lambda genotype: Reading()) == [{"params": 195.0}]


def test_networks_of_a_pool_are_freed(run):
    """However many there are, one is there at a time, and of those scored nothing but their values."""
    alive, most = weakref.WeakSet(), []

    def network(genotype):
        most.append(len(alive))
        alive.add(built := NETWORK(genotype))
        return built

    run(sample(6), {"params": Params(), "norm": GradNorm()}, network)
    gc.collect()
    assert len(most) >= 6
    assert max(most) <= 1
    assert not alive


@pytest.mark.parametrize("text", ["my notes", '{"name": "mine"}'])
def test_foreign_file_is_unchanged(run, refusal, tmp_path, text):
    """Whether it stands in the place of the scores or of their settings."""
    for name, place in (("notes.txt", "notes.txt"), ("package", "package.json")):
        file = tmp_path / place
        file.write_text(text)
        assert "The file exists and" in refusal(lambda name=name: run(sample(1), path=tmp_path / name))
        assert file.read_text() == text
        assert [path.name for path in tmp_path.iterdir()] == [place]
        file.unlink()


@pytest.mark.parametrize("name", ["", "."])
def test_path_needs_a_file_name(run, refusal, name):
    assert "the path of a file" in refusal(lambda: run(sample(1), path=name))


def test_pipes_raise(run, refusal, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a pipe" in refusal(lambda: run(sample(1), path=tmp_path / "pipe"))
    assert (tmp_path / "pipe").is_fifo()


def test_settings_without_scores_are_rewritten(run, tmp_path):
    """As a kill leaves them, with other settings now."""
    run(sample(1), path=tmp_path / "pool.csv", seed=1)
    (tmp_path / "pool.csv").unlink()
    run(sample(1), path=tmp_path / "pool.csv", seed=2)
    assert json.loads((tmp_path / "pool.csv.json").read_text())["seed"] == 2


def test_batch_of_one_raises_before_a_file_is_created(run, refusal, tmp_path):
    one = torch.zeros(1, 1, 8, 8), torch.tensor([0])
    assert "at least two samples" in refusal(lambda: run(sample(1), batch=one, path=tmp_path / "pool.csv"))
    assert not [*tmp_path.iterdir()]
