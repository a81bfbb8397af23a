"""`search.py`: its output, files, objective, and next commands."""

import csv
import html
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest
from hydra.experimental.callback import Callback

from nas_lightning.genotype import read_genotypes
from nas_lightning.jobs.search import look_up
from nas_lightning.objectives import TabularNasBench101
from nas_lightning.options import config_folder, description, groups
from nas_lightning.spaces import NasBench101, NasBench201
from nas_lightning.spaces.topology import topology_metrics, topology_text
from tests.cli.conftest import TINY_DATA, TINY_SEARCH, run_process
from tests.yamls import file as yaml_of
from tests.yamls import options, small

QUICK = (*TINY_SEARCH, "trainer.max_epochs=2")


def next_arguments(out: str) -> list[str]:
    """Return the arguments of the next command that a search prints."""
    return shlex.split(out.split("Train it:\n")[1])


class Spy(Callback):
    """Record the return value of a job."""

    returned: list = []  # noqa: RUF012

    def on_job_end(self, config, job_return, **kwargs):
        self.returned.append(job_return.return_value)


def test_files_of_a_search(command, tmp_path):
    code, out, err = command("search", *QUICK, "strategy=darts", "run=my run", "seed=3")
    assert (code, err) == (0, "")
    run = tmp_path / "my run"
    made = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert made >= {
        *(".hydra/config.yaml", ".hydra/overrides.yaml", "checkpoints/last.ckpt", "genotype.json"),
        *("history.jsonl", "metrics.csv", "report.html", "summary.json", "search.log"),
        *("figures/genotype.png", "figures/genotype.svg", "figures/weights_cell.png"),
    }
    assert not [name for name in made if "partial" in name]

    facts = json.loads((run / "genotype.json").read_text())
    (genotype,) = read_genotypes(run)
    network = NasBench201().network(genotype, in_channels=1, num_classes=4, channels=4, cells=1)
    assert facts["params"] == sum(p.numel() for p in network.parameters())
    assert (facts["strategy"], facts["space"], facts["dataset"], facts["seed"]) == (
        "Darts",
        "nasbench201",
        "fake",
        3,
    )
    assert NasBench201().parse(facts["notation"][0]) == genotype
    assert set(facts["versions"]) >= {"nas_lightning", "torch"}
    rows = list(csv.DictReader((run / "metrics.csv").read_text().splitlines()))
    last = [row["valid_accuracy"] for row in rows if row["valid_accuracy"]][-1]
    assert facts["metrics"]["valid_accuracy"] == pytest.approx(float(last), abs=1e-6)
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert history[-1]["genotypes"] == [genotype.to_dict()]
    assert str(genotype) in out
    assert topology_text(genotype) in out
    for name, value in topology_metrics(genotype).items():
        assert [float(row[name]) for row in rows if row[name]][-1] == pytest.approx(value, abs=1e-5)
        assert facts["metrics"][name] == pytest.approx(value, abs=1e-5)
    assert json.loads((run / "summary.json").read_text())["overrides"] == [
        *(line for line in QUICK),
        "strategy=darts",
        "seed=3",
    ]


def test_output_of_a_search(command, tmp_path):
    _, out, err = command("search", *QUICK, "strategy=darts")
    assert err == ""
    lines = [line for line in out.splitlines() if line]
    assert lines[0].startswith("Searching nasbench201 with Darts on fake, 2 epochs, seed 0 → outputs/search/")
    assert [line[:9] for line in lines[1:3]] == ["epoch 1/2", "epoch 2/2"]
    assert lines[3].startswith("cell: ")
    assert "parameters" in lines[4]
    assert lines[5].startswith("cell: depth ")
    assert lines[6].startswith("train_accuracy")
    for line, name in zip(lines[7:10], ("genotype.json", "genotype.png", "report.html"), strict=True):
        path = Path(line.split()[1])
        assert not path.is_absolute()
        assert path.name == name
        assert path.is_file()
    assert lines[10] == "Train it:"
    assert len(lines) == 12


def test_printed_command_trains_the_architecture(command, tmp_path):
    _, out, _ = command("search", *QUICK, "strategy=random", 'run="a folder, with (signs)"')
    argv = [*next_arguments(out)[1:], "trainer.max_epochs=1"]
    assert argv[-3:-1] == ["network.channels=4", "network.cells=1"]  # the sizes of the search
    run = command("train", *argv)
    assert run.code == 0, run.err
    assert "on fake" in run.out
    (trained,) = (tmp_path / "outputs" / "train").iterdir()
    assert read_genotypes(trained) == read_genotypes(tmp_path / "a folder, with (signs)")
    stored = json.loads((trained / "summary.json").read_text())["overrides"]
    assert {"dataset=fake", "dataset.shape=[1,8,8]", "dataset.train_size=32"} <= set(stored)


def test_printed_command_for_several_architectures_trains_an_ensemble(command):
    quick = (*QUICK, "strategy=random", "strategy.count=2", "callbacks.history.figures=false", "run=a")
    _, out, _ = command("search", *quick)
    assert {"genotype=file", "genotype.path=a", "ensemble=all"} <= {*next_arguments(out)}


def test_printed_command_has_the_data_set_of_the_experiment(command, tmp_path, images):
    experiment = tmp_path / "mine" / "experiment" / "cats.yaml"
    experiment.parent.mkdir(parents=True)
    experiment.write_text(
        dedent(f"""\
        # @package _global_
        # Cats, dogs and owls
        defaults:
          - override /dataset: image_folder
        dataset:
          root: {images}
          batch_size: 2
        """)
    )
    quick = ("space=nasbench201", "supernet.channels=2", "supernet.cells=1", "network.channels=2")
    argv = (*quick, "strategy=random", "--config-dir", "mine", "experiment=cats", "network.cells=1")
    code, out, err = command("search", *argv)
    assert code == 0, err
    argv = next_arguments(out)
    page = html.unescape((next((tmp_path / "outputs" / "search").iterdir()) / "report.html").read_text())
    program = [argv[0].replace("nas-train", "nas-search"), "--config-dir", "mine"]
    again = [*program, *quick, "strategy=random", "experiment=cats", "network.cells=1", "seed=1"]
    assert all(f">cd {tmp_path} && {shlex.join(line)}</pre>" in page for line in (argv, again))
    assert argv[1:3] == ["--config-dir", "mine"]
    assert "dataset=image_folder" in argv
    assert f"dataset.root={images}" in argv
    assert not any("batch_size" in argument for argument in argv)  # a search's, not the training's


def test_objective_is_returned_to_hydra(command, tmp_path):
    Spy.returned.clear()
    spy = f"+hydra.callbacks.spy._target_={Spy.__module__}.Spy"
    assert command("search", *QUICK, "strategy=darts", "run=a", "objective=valid_loss", spy).code == 0
    facts = json.loads((tmp_path / "a" / "genotype.json").read_text())
    assert Spy.returned == [facts["metrics"]["valid_loss"]]


def test_benchmark_metrics_of_the_genotype(command, tmp_path):
    from nas_lightning.objectives.tables import all_notations

    lines = [f"{arch},{i / 200},{i / 250},{i / 400}" for i, arch in enumerate(all_notations())]
    (tmp_path / "table.csv").write_text("\n".join(["arch,cifar10,cifar100,imagenet16-120", *lines, ""]))
    asked = ("benchmark=nasbench201", "benchmark.path=table.csv", "strategy=random", "run=a")
    code, out, err = command("search", *QUICK, *asked)
    assert (code, err) == (0, "")
    facts = json.loads((tmp_path / "a" / "genotype.json").read_text())
    place = list(all_notations()).index(facts["notation"][0])
    assert facts["metrics"]["true_accuracy"] == pytest.approx(place / 200 / 100)
    assert facts["metrics"]["true_rank"] == 15_625 - place
    assert f"true_rank {15_625 - place:,}" in out
    code, _, err = command("search", *QUICK, *asked[:2], "space=darts", "run=b")
    assert code == 1
    assert "needs space=nasbench201" in err


ONE_SHOT = ("space=nasbench1shot1_s1", "supernet.channels=2", "trainer.max_epochs=1")
UNJUDGED = ("strategy.evaluation=none", "trainer.max_epochs=1")
MODULE = "010001000:input,maxpool3x3,output"


def write_small_table(folder, name: str) -> None:
    """A table of one module of NAS-Bench-101."""
    header, row = "genotype,cifar10_valid", [f'"{MODULE}"', "92.5"]
    if name == "nasbench101":
        space = NasBench101()
        header, row = "hash,module,cifar10", [space.hash(space.parse(MODULE)), *row]
    (folder / "table.csv").write_text(f"{header}\n{','.join(row)}\n")


@pytest.mark.parametrize(
    ("benchmark", "search"),
    [
        ("nasbench101", ("space=nasbench1shot1_s1", "strategy=random")),
        ("nasbench101", (*ONE_SHOT, "strategy=darts")),
        pytest.param("nasbench101", (*ONE_SHOT, "strategy=nasi"), marks=pytest.mark.slow),
        pytest.param(
            "nasbench101", (*ONE_SHOT, "strategy=nesbs", "~supernet.partial"), marks=pytest.mark.slow
        ),
        ("table", ("space=nasbench101", "strategy=eigen_nas", "strategy.pool_size=3", *UNJUDGED)),
    ],
)
def test_genotype_that_is_not_in_the_table(command, tmp_path, benchmark, search):
    write_small_table(tmp_path, benchmark)
    asked = (f"benchmark={benchmark}", "benchmark.path=table.csv", "run=a")
    code, out, err = command("search", *TINY_DATA, *search, "network.channels=8", "network.cells=1", *asked)
    assert (code, err) == (0, "")
    note = "not in the table (benchmark.path): its accuracy is unknown"
    assert note in out.splitlines()
    facts = json.loads((tmp_path / "a" / "genotype.json").read_text())
    assert facts["note"] == note
    assert facts["notation"][0] != MODULE
    assert not {"true_accuracy", "table/cifar10_valid"} & set(facts["metrics"])
    assert note in (tmp_path / "a" / "report.html").read_text()


EVALUATING = [name for name in options("strategy") if "_black_box" in yaml_of("strategy", name).read_text()]


@pytest.mark.parametrize(
    "strategy",
    [name if name == "evolution" else pytest.param(name, marks=pytest.mark.slow) for name in EVALUATING],
)
def test_evaluation_with_an_incomplete_table(command, tmp_path, strategy):
    """Missing architectures count as 0 %, with a single warning."""
    write_small_table(tmp_path, "nasbench101")
    asked = (f"strategy={strategy}", "strategy.evaluation=table", "trainer.max_epochs=2")
    network = ("space=nasbench1shot1_s1", "network.channels=8", "network.cells=1")
    quick = [word for word in small("strategy", strategy) if not word.startswith("strategy.evaluation")]
    table = ("benchmark=nasbench101", "benchmark.path=table.csv", "run=a")
    with pytest.warns(UserWarning, match="The architecture must be") as warned:
        code, out, err = command("search", *TINY_DATA, *quick, *network, *asked, *table)
    assert code == 0, err
    assert sum("missing architectures count as 0 %" in str(one.message) for one in warned) == 1
    assert "not in the table (benchmark.path): its accuracy is unknown" in out.splitlines()
    assert read_genotypes(tmp_path / "a")


def test_look_up_in_a_table(tmp_path):
    write_small_table(tmp_path, "nasbench101")
    table = TabularNasBench101(tmp_path / "table.csv")
    assert look_up(table.space.parse(MODULE), table) == ({"true_accuracy": 0.925, "true_rank": 1}, None)
    assert look_up(table.space.parse(MODULE), None) == ({}, None)


def test_additional_callbacks(command, tmp_path):
    """Callbacks get parts by argument name, and arguments of the trainer need no plus sign."""
    argv = (*QUICK, "callbacks=[search,ntk,ranking]", "callbacks.ranking.every_n_epochs=1", "run=a")
    assert command("search", *argv, "strategy=darts", "trainer.limit_train_batches=1").code == 0
    logged = set((tmp_path / "a" / "metrics.csv").read_text().splitlines()[0].split(","))
    assert {"ntk_sqrt_mean_diag", "ntk_condition", "ntk_lambda_min", "ranking/kendall_tau"} <= logged


def test_unknown_callback(command):
    code, _, err = command("search", *QUICK, "callbacks=[search,nkt]")
    assert code == 1
    assert err == "error: `callbacks` has no option `nkt`. Did you mean `ntk`?\n"


def test_runs_in_the_same_second_get_distinct_folders(command, tmp_path):
    fixed = ("strategy=random", *TINY_SEARCH, "callbacks.history.figures=false")
    for _ in range(2):
        assert command("search", *fixed).code == 0
    assert len(list((tmp_path / "outputs" / "search").iterdir())) == 2


# Sweeps


def test_sweep_table(command, tmp_path):
    argv = ("-m", *QUICK, "strategy=darts,random", "seed=0,1", "run=sweep", "callbacks.history.figures=false")
    code, out, err = command("search", *argv)
    assert (code, err) == (0, "")
    table = (tmp_path / "sweep" / "table.md").read_text()
    assert table in out
    jobs, seeds, footer = table.rstrip().split("\n\n")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in jobs.splitlines()]
    assert [row[1] for row in rows[2:]] == [
        *("strategy=darts seed=0", "strategy=darts seed=1"),
        *("strategy=random seed=0", "strategy=random seed=1"),
    ]
    for number, row in enumerate(rows[2:]):
        facts = json.loads((tmp_path / "sweep" / str(number) / "genotype.json").read_text())
        cells = dict(zip(rows[0], row, strict=True))
        assert cells["parameters"] == f"{facts['params']:,}"
        accuracy = facts["metrics"].get("valid_accuracy")
        assert cells["valid_accuracy"] == ("" if accuracy is None else f"{accuracy:.4f}")
    first, second = ((float(row[2])) for row in rows[2:4])
    _, _, darts, random = ([cell.strip() for cell in line.split("|")[1:-1]] for line in seeds.splitlines())
    mean, deviation = darts[2].split(" ± ")
    assert darts[:2] == ["strategy=darts", "2"]
    assert float(mean) == pytest.approx((first + second) / 2, abs=2e-4)
    assert float(deviation) == pytest.approx(abs(first - second) / 2**0.5, abs=2e-4)
    assert random[:3] == ["strategy=random", "2", ""]
    assert footer == "valid_accuracy: not measured by job 2, 3"


def test_sweep_continues_after_a_failed_job(command, tmp_path):
    argv = (
        "-m",
        *QUICK,
        "strategy=darts",
        "strategy.lr=-1,0.1",
        "run=sweep",
        "callbacks.history.figures=false",
    )
    code, _, err = command("search", *argv)
    assert code == 1
    assert err == "error: `lr` must be greater than 0, got -1 (in strategy.lr)\n"
    table = (tmp_path / "sweep" / "table.md").read_text().splitlines()
    assert "`lr` must be greater than 0" in table[2]
    assert "strategy.lr=0.1" in table[3]
    assert (tmp_path / "sweep" / "1" / "genotype.json").is_file()


def test_traceback_of_a_failed_job_is_saved(command, tmp_path, write_strategy):
    write_strategy("broken", "raise RuntimeError('out of\\nmemory')")
    argv = ("-m", *QUICK, "strategy=broken,random", "--config-dir", "mine", "run=sweep")
    code, _, err = command("search", *argv)
    assert code == 1
    assert err.startswith("error: RuntimeError: out of memory (see ")
    assert "Traceback" in (tmp_path / "sweep" / "0" / "error.txt").read_text()
    assert (tmp_path / "sweep" / "1" / "genotype.json").is_file()


@pytest.mark.slow
def test_sweep_with_joblib(tmp_path):
    argv = (
        "-m",
        *QUICK,
        "strategy=random",
        "seed=0,1",
        "run=sweep",
        "launcher=joblib",
        "hydra.launcher.n_jobs=2",
    )
    run = run_process("search", *argv, cwd=tmp_path)
    out, err = run.communicate()
    assert run.returncode == 0, err
    assert (tmp_path / "sweep" / "table.md").read_text() in out
    assert len(list((tmp_path / "sweep").glob("*/genotype.json"))) == 2


# Custom strategies


@pytest.fixture
def write_strategy(tmp_path):
    """`write_strategy(name, line)`: write a custom strategy and its yaml in mine/strategy."""

    def write(name: str, line: str) -> None:
        (tmp_path / "mine" / "strategy").mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / "strategy" / f"{name}.yaml").write_text(
            f"# {name}: a custom strategy\n_target_: custom_{name}.Custom\nlength: 3\nseed: ${{seed}}\n"
        )
        (tmp_path / f"custom_{name}.py").write_text(
            dedent(f"""\
            from nas_lightning.strategies import Strategy

            class Custom(Strategy):
                def __init__(self, space, *, length: int = 1, seed: int = 0):
                    super().__init__(space, seed)
                    self.length = length

                def derive(self):
                    {line}

                def training_step(self, *args):
                    return None

                def configure_optimizers(self):
                    return None
            """)
        )

    return write


def test_custom_strategy(command, tmp_path, write_strategy):
    write_strategy("mine", "return [self.space.sample(self.generator) for _ in range(self.length)]")
    argv = (*TINY_SEARCH, "trainer.max_epochs=0", "strategy=mine", "--config-dir", "mine", "run=a")
    code, out, err = command("search", *argv)
    assert (code, err) == (0, "")
    assert "with Custom" in out
    assert len(read_genotypes(tmp_path / "a")) == 3
    assert "mine: a custom strategy" in command("search", "--help", "--config-dir", "mine").out


def test_installed_command_in_any_folder(tmp_path, write_strategy):
    write_strategy("mine", "return [self.space.sample(self.generator)]")
    script = Path(sys.executable).with_name("nas-search")
    argv = [script, *TINY_SEARCH, "trainer.max_epochs=0", "strategy=mine", "--config-dir=mine", "run=a"]
    run = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "nas-train --config-dir mine genotype=file genotype.path=a dataset=fake" in run.stdout


# Help


def test_help_lists_every_option(command):
    code, out, err = command("search", "--help")
    assert (code, err) == (0, "")
    assert "  nas-search strategy=darts dataset=cifar10" in out
    for group in ("strategy", "space", "dataset", "experiment", "launcher", "logger"):
        for option, line in groups()[group].items():
            if not option.startswith("retrain/"):
                assert option in out
                assert line, f"{group}/{option}.yaml has no line"


def test_help_does_not_import_torch():
    code = "import sys; sys.argv = ['search.py', '--help']\nfrom nas_lightning.cli import search\n"
    code += (
        "try: search()\nexcept SystemExit: print(*{'torch', 'pytorch_lightning', 'timm'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == ""


def test_cfg_writes_nothing(command, tmp_path):
    code, out, _ = command("search", *QUICK, "--cfg", "job")
    assert code == 0
    assert "max_epochs: 2" in out
    assert not list(tmp_path.iterdir())


def test_every_yaml_has_a_short_description():
    lines = [description(path) for path in config_folder().glob("*/**/*.yaml")]
    assert len(lines) > 40
    assert all(line and len(line) < 140 for line in lines)


def interrupt(folder: Path, number: signal.Signals, *argv: str) -> tuple[int, str]:
    """Return the exit code and output of a search that gets a signal after its first epoch."""
    endless = (*TINY_SEARCH, "trainer.max_epochs=5000", "strategy=gdas", "run=a", *argv)
    run = run_process("search", *endless, cwd=folder)
    while not (folder / "a" / "checkpoints" / "last.ckpt").exists():
        assert run.poll() is None
        time.sleep(0.1)
    os.kill(run.pid, number)
    out, _ = run.communicate(timeout=60)
    name, *words = shlex.split(out.split("Resume with:\n")[1])
    assert (Path(name).name, words) == ("nas-search", ["resume=a"])
    return run.returncode, out


@pytest.mark.slow
def test_ctrl_c_prints_the_resume_command(tmp_path):
    assert interrupt(tmp_path, signal.SIGINT)[0] == 1


def test_sigterm_prints_the_resume_command(tmp_path):
    assert interrupt(tmp_path, signal.SIGTERM)[0] == 128 + signal.SIGTERM


@pytest.mark.slow
def test_sigterm_to_one_of_several_processes(tmp_path):
    """With Lightning's handler, the processes would wait for each other."""
    code, _ = interrupt(tmp_path, signal.SIGTERM, "trainer=ddp", "dataset.batch_size=2")
    assert code == 128 + signal.SIGTERM


def test_ctrl_c_during_the_start(command, monkeypatch):
    def interrupted(cfg):
        raise KeyboardInterrupt

    monkeypatch.setattr("nas_lightning.cli.main.run_job", interrupted)
    assert command("search", *QUICK) == (128 + signal.SIGINT, "", "")


def test_search_with_limits(command, tmp_path):
    argv = (*TINY_SEARCH, "strategy=darts", "limits.params=5000", "limits.minutes=0.05", "run=here")
    code, out, err = command("search", *argv)
    assert (code, err) == (0, "")
    assert "on fake, 3 s, seed 0" in out
    assert "of 3 s" in out
    facts = json.loads((tmp_path / "here" / "genotype.json").read_text())
    assert facts["params"] <= 5000
    assert {"limits/params_excess", "limits/params_multiplier"} <= {*facts["metrics"]}


def test_unreachable_limit(command, tmp_path):
    code, _, err = command("search", *QUICK, "strategy=darts", "limits.params=9", "run=here")
    assert code == 1
    assert err.startswith("error: `params` must be at least ")
    assert err.count("\n") == 1
    assert not (tmp_path / "here").exists()
