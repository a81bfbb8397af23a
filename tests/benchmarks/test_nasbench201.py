"""The table against plain counting, its own file, and the numbers that are published of the real one."""

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from nas_lightning.benchmarks.nasbench201 import TabularNasBench201, main
from nas_lightning.benchmarks.tables import ARCHITECTURES, all_notations
from nas_lightning.errors import InputError
from nas_lightning.objectives.table import OracleAccuracy, ValidationAccuracy
from nas_lightning.options import config_folder
from nas_lightning.spaces import DartsSpace, NasBench201

SPACE = NasBench201()


def draw_weights(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [SPACE.sample(generator) for _ in range(count)]


def test_the_strings_are_those_of_the_space():
    assert len(all_notations()) == ARCHITECTURES == 15_625
    assert all(SPACE.notation(genotype) in all_notations() for genotype in draw_weights(20))


def test_query_rank_and_best_against_the_lines(whole, lines):
    benchmark = TabularNasBench201(whole)
    by_arch = {row[0]: [float(value) for value in row[1:]] for row in lines}
    for genotype in draw_weights(5):
        entry = benchmark.query(genotype)
        values = by_arch[SPACE.notation(genotype)]
        assert list(entry.test.values()) == values
        assert entry.valid is None
        assert entry.valid_12 is None
        position = sorted((row[0] for row in by_arch.values()), reverse=True).index(values[0])
        assert benchmark.rank(genotype) == benchmark.rank(genotype, "cifar100") == position + 1
        assert benchmark.describe(genotype) == {"true_accuracy": values[0] / 100, "true_rank": position + 1}
    assert benchmark.query(benchmark.best()).test["cifar10"] == (ARCHITECTURES - 1) / 200
    assert benchmark.rank(benchmark.best()) == 1


def test_equals_share_the_better_rank(table, lines):
    benchmark = TabularNasBench201(table([[row[0], *["50"] * 3] for row in lines]))
    assert {benchmark.rank(genotype) for genotype in draw_weights(5)} == {1}


def test_the_data_set_is_what_defaults_refer_to(whole):
    genotype = draw_weights(1)[0]
    other = TabularNasBench201(whole, "imagenet16-120")
    assert other.describe(genotype)["true_accuracy"] == other.query(genotype).test["imagenet16-120"] / 100
    for call in (lambda: TabularNasBench201(whole, "cifar"), lambda: other.rank(genotype, "svhn")):
        with pytest.raises(InputError, match="expected a data set of NAS-Bench-201"):
            call()


def test_a_validation_objective_reads_no_test_column(validated):
    """It stays what it was when every test accuracy is lost; the oracle does not."""
    benchmark = TabularNasBench201(validated)
    objective, oracle = ValidationAccuracy(benchmark), OracleAccuracy(benchmark)
    short = ValidationAccuracy(benchmark, epochs=12)
    genotypes = draw_weights(5)
    tests = [benchmark.query(genotype).test["cifar10"] for genotype in genotypes]
    assert [oracle(genotype) for genotype in genotypes] == tests
    for name in ("cifar10", "cifar100", "imagenet16-120"):
        del benchmark.table[name]
    assert [objective(genotype) for genotype in genotypes] == [100 - value for value in tests]
    assert [short(genotype) for genotype in genotypes] == [90 - value for value in tests]
    with pytest.raises(KeyError):
        oracle(genotypes[0])


def test_objectives_are_named_for_what_they_read(validated, whole):
    benchmark = TabularNasBench201(validated)
    assert ValidationAccuracy(benchmark).name == "valid_accuracy"
    assert ValidationAccuracy(benchmark, 12).name == "valid_accuracy_12_epochs"
    assert OracleAccuracy(benchmark).name.startswith("oracle")
    with pytest.raises(InputError, match="expected a table with the column 'cifar10-valid'"):
        ValidationAccuracy(TabularNasBench201(whole))
    with pytest.raises(InputError, match="expected 12 or 200 epochs"):
        ValidationAccuracy(benchmark, 90)


def test_other_spaces_are_refused(whole):
    benchmark = TabularNasBench201(whole)
    benchmark.check_space(SPACE)
    benchmark.check_space(NasBench201(ops=("none", "nor_conv_3x3")))
    with pytest.raises(InputError, match="expected operations of NAS-Bench-201"):
        benchmark.check_space(NasBench201(ops=("none", "sep_conv_3x3")))
    with pytest.raises(InputError, match="expected space=nasbench201"):
        benchmark.check_space(DartsSpace())
    with pytest.raises(InputError):
        benchmark.query(DartsSpace().sample(torch.Generator().manual_seed(0)))


def test_the_configuration(whole):
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        cfg = compose(overrides=["+benchmark=nasbench201", f"benchmark.path={whole}"])
        assert not compose(overrides=["+benchmark=none"]).get("benchmark")
    assert instantiate(cfg.benchmark).dataset == "cifar10"


def test_converted_tables_say_the_same(validated, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    target = tmp_path / "new" / "table.parquet"
    main(["convert", str(validated), str(target)])
    assert "15,625 architectures" in capsys.readouterr().out
    assert [path.name for path in target.parent.iterdir()] == ["table.parquet"]
    assert target.stat().st_size < 4e6
    assert TabularNasBench201(target).table == TabularNasBench201(validated).table


def test_a_command_that_cannot_work_is_one_line_and_writes_nothing(whole, tmp_path):
    missing, target = tmp_path / "none.csv", tmp_path / "table.parquet"
    for source, wrong in ((whole, tmp_path / "table.pth"), (missing, target)):
        with pytest.raises(SystemExit, match=r"^error: expected ") as stop:
            main(["convert", str(source), str(wrong)])
        assert len(str(stop.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_real_table(shared_data):
    """The best of each data set, as the benchmark's paper and every search on it quote them."""
    benchmark = TabularNasBench201(shared_data / "nasbench201" / "test_accuracy.csv")
    published = {"cifar10": 94.37, "cifar100": 73.51, "imagenet16-120": 47.31}
    for dataset, accuracy in published.items():
        best = benchmark.best(dataset)
        assert benchmark.query(best).test[dataset] == pytest.approx(accuracy, abs=0.005)
        assert benchmark.rank(best, dataset) == 1
    ops = ["skip_connect"] * 6
    skips = SPACE.parse("|{}~0|+|{}~0|{}~1|+|{}~0|{}~1|{}~2|".format(*ops))
    # where DARTS ends (arXiv:2001.00326, table 5)
    assert benchmark.query(skips).test["cifar10"] == pytest.approx(54.30, abs=0.005)
