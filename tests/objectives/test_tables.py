"""Tabular benchmarks: against plain counting, their official formats, and published numbers."""

import bz2
import json
import pickle

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from nas_lightning.errors import InputError
from nas_lightning.objectives import table_formats
from nas_lightning.objectives.convert import main
from nas_lightning.objectives.tables import (
    ARCHITECTURES,
    GenotypeTable,
    OracleAccuracy,
    TabularNasBench201,
    ValidationAccuracy,
    all_notations,
    read_nasbench201,
    table_accuracy,
)
from nas_lightning.options import config_folder
from nas_lightning.spaces import DartsSpace, NasBench101, NasBench201
from tests.objectives.conftest import write

# NAS-Bench-201


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


def test_equal_architectures_share_the_better_rank(table, lines):
    benchmark = TabularNasBench201(table([[row[0], *["50"] * 3] for row in lines]))
    assert {benchmark.rank(genotype) for genotype in draw_weights(5)} == {1}


def test_default_data_set(whole):
    genotype = draw_weights(1)[0]
    other = TabularNasBench201(whole, "imagenet16-120")
    assert other.describe(genotype)["true_accuracy"] == other.query(genotype).test["imagenet16-120"] / 100
    for call in (lambda: TabularNasBench201(whole, "cifar"), lambda: other.rank(genotype, "svhn")):
        with pytest.raises(InputError, match="Unknown data set of NAS-Bench-201"):
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
    with pytest.raises(InputError, match="The table must have the column 'cifar10-valid'"):
        ValidationAccuracy(TabularNasBench201(whole))
    with pytest.raises(InputError, match="`epochs` must be 12 or 200"):
        ValidationAccuracy(benchmark, 90)


def test_other_spaces_raise(whole):
    benchmark = TabularNasBench201(whole)
    benchmark.check_space(SPACE)
    benchmark.check_space(NasBench201(ops=("none", "nor_conv_3x3")))
    with pytest.raises(InputError, match="Operations must be those of NAS-Bench-201"):
        benchmark.check_space(NasBench201(ops=("none", "sep_conv_3x3")))
    with pytest.raises(InputError, match="needs space=nasbench201"):
        benchmark.check_space(DartsSpace())
    with pytest.raises(InputError):
        benchmark.query(DartsSpace().sample(torch.Generator().manual_seed(0)))


def test_the_configuration(whole):
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        cfg = compose(overrides=["+benchmark=nasbench201", f"benchmark.path={whole}"])
        assert not compose(overrides=["+benchmark=none"]).get("benchmark")
    assert instantiate(cfg.benchmark).dataset == "cifar10"


def test_converted_table_is_equal(validated, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    target = tmp_path / "new" / "table.parquet"
    main([str(validated), str(target)])
    assert "15,625 architectures" in capsys.readouterr().out
    assert [path.name for path in target.parent.iterdir()] == ["table.parquet"]
    assert target.stat().st_size < 4e6
    assert TabularNasBench201(target).table == TabularNasBench201(validated).table


def test_failing_command_is_one_line_and_writes_nothing(whole, tmp_path):
    missing, target = tmp_path / "none.csv", tmp_path / "table.parquet"
    for source, wrong in ((whole, tmp_path / "table.pth"), (missing, target)):
        with pytest.raises(SystemExit, match=r"^error: ") as stop:
            main([str(source), str(wrong)])
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


# Files of NAS-Bench-201


def test_a_file_that_is_not_there(tmp_path, refusal):
    assert "The file must be a table of NAS-Bench-201" in refusal(read_nasbench201, tmp_path / "none.csv")


def test_a_missing_column(table, lines, refusal):
    for column in range(4):
        header = ["arch", "cifar10", "cifar100", "imagenet16-120"]
        name = header.pop(column)
        path = table([[value for i, value in enumerate(row) if i != column] for row in lines[:3]], header)
        assert f"There must be a column {name!r}" in refusal(read_nasbench201, path)


def test_too_few_architectures(table, lines, refusal):
    assert "There must be 15625 architectures, got 15624" in refusal(read_nasbench201, table(lines[:-1]))


def test_an_architecture_twice(table, lines, refusal):
    message = refusal(read_nasbench201, table([*lines[:9], lines[4], *lines[10:]]))
    assert "Architectures must be distinct; this one is also in row 5" in message
    assert message.endswith("row 10)")


def test_a_malformed_architecture(table, lines, refusal):
    for arch in ("", "resnet", "|nor_conv_9x9~0|+|none~0|none~1|+|none~0|none~1|none~2|", " {}", "{} "):
        wrong = [arch.format(lines[2][0]), *lines[2][1:]]
        assert refusal(read_nasbench201, table([*lines[:2], wrong, *lines[3:5]])).endswith("row 3)"), arch


def test_value_that_is_not_a_percentage(refusal, tmp_path):
    for value in ("", "-0.1", "100.1", "nan", "inf", "1e9", "ninety", "93,7"):
        message = refusal(table_formats.parse_percentages, ["50", value], "cifar10", tmp_path)
        assert "`cifar10` must be a percentage from 0 to 100" in message, value
        assert message.endswith("row 2)")


def test_a_wrong_value_in_a_table(table, lines, refusal):
    message = refusal(read_nasbench201, table([lines[0], [*lines[1][:3], "-1"], *lines[2:]]))
    assert message.endswith("row 2)")


def test_a_value_too_few_or_too_many(table, lines, refusal):
    for wrong in (lines[3][:-1], [*lines[3], "1"]):
        message = refusal(read_nasbench201, table([*lines[:3], wrong, *lines[4:]]))
        assert "The row must have 4 values" in message
        assert message.endswith("row 4)")


def test_other_files_raise(tmp_path, refusal):
    for name in ("t.csv", "t.pickle.pbz2", "t.pth", "t.parquet", "t.xlsx"):
        for content in (b"", b"\xff\xfe\x00", b"\n\n", b"PK\x03\x04", b'"arch', b"arch,arch\n"):
            path = tmp_path / name
            path.write_bytes(content)
            assert refusal(read_nasbench201, path), (name, content)


def test_truncated_file(whole, tmp_path, refusal):
    content = whole.read_bytes()
    for size in (20, 1000, len(content) // 2, len(content) - 20):
        path = tmp_path / "cut.csv"
        path.write_bytes(content[:size])
        assert refusal(read_nasbench201, path)


def test_folders_count_as_official_files(tmp_path, refusal):
    assert "--trust" in refusal(read_nasbench201, tmp_path)
    message = refusal(lambda: read_nasbench201(tmp_path, trust=True))
    assert "nats_bench" in message or "official file" in message


class FakeApi:
    """What both packages have in common."""

    def __init__(self, archs, complete):
        self.meta_archs, self.complete, self.arch2infos_dict = archs, complete, {}

    def get_more_info(self, index, dataset, hp, is_random):
        assert is_random is False
        if hp == "12" and dataset != "cifar10-valid" and not self.complete:
            raise KeyError(dataset)
        self.arch2infos_dict[index] = "everything"
        base = index + int(hp) / 1000 + len(dataset) / 10000
        test = {} if dataset == "cifar10-valid" else {"test-accuracy": base}
        valid = {} if dataset == "cifar10" else {"valid-accuracy": base + 50}
        return {"train-accuracy": 99.0, **test, **valid}


@pytest.mark.parametrize("complete", [True, False])
def test_columns_of_the_official_interface(complete):
    api = FakeApi(["a", "b"], complete)
    columns = table_formats.columns_of_api(api, forget=True)
    assert columns["arch"] == ["a", "b"]
    assert columns["cifar10"] == pytest.approx([0.2007, 1.2007])
    assert columns["imagenet16-120"] == pytest.approx([0.2014, 1.2014])
    assert columns["cifar10-valid"] == pytest.approx([50.2013, 51.2013])
    assert columns["cifar10-valid-12"] == pytest.approx([50.0133, 51.0133])
    assert ("cifar100-valid-12" in columns) == complete
    assert api.arch2infos_dict == {}


def test_nats_bench_files(tmp_path):
    """A folder of three architectures in the layout of NATS-tss-v1_0-3ffb9-simple."""
    nats = pytest.importorskip("nats_bench")
    archs = sorted(all_notations())[:3]
    folder = tmp_path / "NATS-tss-simple"
    folder.mkdir()
    write_pickle(folder / "meta.pickle.pbz2", {"meta_archs": archs})
    for index, arch in enumerate(archs):
        trained = {hp: results(nats, index, arch, int(hp)).state_dict() for hp in ("12", "200")}
        write_pickle(folder / f"{index:06d}.pickle.pbz2", trained)
    columns = table_formats.read_official201(folder, trust=True)
    assert columns["arch"] == archs
    assert columns["cifar10"] == pytest.approx([60.5, 61.5, 62.5])
    assert columns["cifar100"] == pytest.approx([61.5, 62.5, 63.5])
    assert columns["imagenet16-120-valid"] == pytest.approx([71.5, 72.5, 73.5])
    assert columns["cifar10-valid"] == pytest.approx([70.5, 71.5, 72.5])
    assert columns["cifar10-valid-12"] == pytest.approx([30.5, 31.5, 32.5])


def results(nats, index, arch, epochs):
    """Two training runs on each data set, an accuracy of 1 apart; 40 less after 12 epochs."""
    found = nats.ArchResults(index, arch)
    sets = {
        "cifar10": {"ori-test": 60},
        "cifar10-valid": {"x-valid": 70, "ori-test": 55},
        "cifar100": {"x-valid": 71, "x-test": 61, "ori-test": 66},
        "ImageNet16-120": {"x-valid": 71, "x-test": 61, "ori-test": 66},
    }
    for name, accuracies in sets.items():
        found.dataset_seed[name] = [777, 888]
        for run, seed in enumerate((777, 888)):
            curve = dict.fromkeys(range(epochs), 1.0)
            result = nats.ResultsCount(name, None, curve, curve, 1, 1, {}, seed, epochs, None)
            last = {f"{key}@{epochs - 1}": v + index + run for key, v in accuracies.items()}
            result.eval_names = list(accuracies)
            result.eval_acc1es = {key: value - (40 if epochs == 12 else 0) for key, value in last.items()}
            result.eval_losses = dict.fromkeys(last, 1.0)
            found.all_results[name, seed] = result
    return found


def write_pickle(path, content):
    with bz2.BZ2File(path, "wb") as file:
        pickle.dump(content, file)


# Tables of any space


SPACES = [NasBench201(), DartsSpace(), NasBench101()]


@pytest.fixture
def rows(generator):
    """`rows(space)`: architectures and numbers that tell them apart."""
    return lambda space, count=6: [
        [space.notation(space.sample(generator)), str(80 + number), str(number)] for number in range(count)
    ]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_every_value_of_every_architecture(space, rows, tmp_path):
    lines = rows(space)
    table = GenotypeTable(write(tmp_path / "t.csv", lines, ("genotype", "test", "cost")), space)
    assert (table.dataset, table.datasets) == ("test", ("test", "cost"))
    for text, test, cost in lines:
        genotype = space.parse(text)
        assert table.query(genotype).test == {"test": float(test), "cost": float(cost)}
        assert table.describe(genotype) == {"table/test": float(test), "table/rank": 6 - float(cost)}
    assert table.best() == space.parse(lines[-1][0])
    assert table_accuracy(table).name == "oracle_test_accuracy"


def test_matrix_and_operations(tmp_path):
    space = NasBench101()
    matrix = [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    ops = ["input", "conv3x3-bn-relu", "output"]
    path = write(
        tmp_path / "t.csv",
        [[json.dumps(matrix), json.dumps(ops), "93.5"]],
        ("matrix", "ops", "cifar10_valid"),
    )
    table = GenotypeTable(path, space)
    genotype = space.parse({"matrix": matrix, "ops": ops})
    objective = table_accuracy(table)
    assert (objective.name, objective(genotype)) == ("valid_accuracy", 93.5)


def test_rows_of_one_architecture_are_averaged(rows, tmp_path):
    space = NasBench201()
    (line,) = rows(space, 1)
    path = write(tmp_path / "t.csv", [line, [line[0], "90", "7"]], ("arch", "a_valid", "seconds"))
    table = GenotypeTable(path, space)
    assert table.column("a_valid", space.parse(line[0])) == 85
    assert table.seconds == {line[0]: 3.5}
    assert table.datasets == ("a_valid",)


def test_larger_sample_begins_with_the_smaller(rows, tmp_path):
    space = DartsSpace()
    lines = rows(space, 12)
    table = GenotypeTable(write(tmp_path / "t.csv", lines, ("genotype", "v", "w")), space)
    sample = table.sample(space, 12, seed=1)
    assert {space.notation(genotype) for genotype in sample} == {line[0] for line in lines}
    assert table.sample(space, 5, seed=1) == sample[:5]
    assert table.sample(space, 12, seed=2) != sample
    with pytest.raises(InputError, match="A sample can have at most the table's 12 architectures, got 13"):
        table.sample(space, 13, seed=1)


def test_missing_architecture_raises(rows, tmp_path, generator):
    space = DartsSpace()
    table = GenotypeTable(write(tmp_path / "t.csv", rows(space), ("genotype", "v", "w")), space)
    other = space.sample(generator)
    assert table.describe(other) == {}
    with pytest.raises(InputError, match="The architecture must be"):
        table.column("v", other)


@pytest.mark.parametrize(
    ("header", "changed", "message"),
    [
        (
            ("cell", "v", "w"),
            {},
            "There must be a column `genotype` or `arch`, or columns `matrix` and `ops`",
        ),
        (("arch", "v", "w"), {0: "resnet"}, r"row 2\)"),
        (("arch", "v", "w"), {1: "good"}, r"`v` must be a number, got 'good' \(in .*row 2\)"),
        (("arch", "v", "w"), {2: "nan"}, "`w` must be a number, got 'nan'"),
    ],
)
def test_wrong_file_raises(rows, tmp_path, header, changed, message):
    lines = rows(NasBench201())
    lines[1] = [changed.get(index, entry) for index, entry in enumerate(lines[1])]
    with pytest.raises(InputError, match=message):
        GenotypeTable(write(tmp_path / "t.csv", lines, header), NasBench201())


def test_files_of_spreadsheets(rows, tmp_path):
    path, space = tmp_path / "t.csv", NasBench201()
    text = "".join(f"{','.join(map(str, line))}\r\n" for line in [("arch", "v", "w"), *rows(space)])
    path.write_bytes(text.encode("utf-8-sig") + b"\r\n\r\n")
    assert GenotypeTable(path, space).datasets == ("v", "w")
    path.write_text(text.replace(",", ";"), encoding="utf-8")
    with pytest.raises(InputError, match="Columns must be separated by commas, got 'arch;v;w'"):
        GenotypeTable(path, space)


def test_column_with_a_missing_first_number_raises(rows, tmp_path):
    lines = rows(NasBench201())
    lines[0][1] = "nan"
    path = write(tmp_path / "t.csv", lines, ("arch", "v", "w"))
    with pytest.raises(InputError, match=r"`v` must be a number, got 'nan' \(in .*row 1\)"):
        GenotypeTable(path, NasBench201())


def test_other_mistakes(rows, tmp_path):
    lines = rows(NasBench201())
    path = write(tmp_path / "t.csv", lines, ("arch", "cifar10_valid", "test"))
    with pytest.raises(InputError, match="did you mean 'cifar10_valid'"):
        GenotypeTable(path, NasBench201(), "cifar10_vald")
    with pytest.raises(InputError, match="The table must be"):
        GenotypeTable(tmp_path / "none.csv", NasBench201())
    with pytest.raises(InputError, match="There must be at least one architecture"):
        GenotypeTable(write(tmp_path / "e.csv", [], ("arch", "v")), NasBench201())
    with pytest.raises(InputError, match="alidation accuracies"):
        GenotypeTable(path, NasBench201(), "test").validation_column()
    with pytest.raises(InputError, match="space=nasbench201"):
        GenotypeTable(path, NasBench201()).check_space(DartsSpace())
