"""Tabular benchmarks: against plain counting, their official formats, and published numbers."""

import bz2
import json
import pickle
import statistics

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module
from hydra.utils import instantiate

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives import table_formats as official
from nas_lightning.objectives import table_formats as official101
from nas_lightning.objectives.convert import main
from nas_lightning.objectives.table_formats import (
    crc32c,
    crc32c_of_each,
    mask_checksum,
    read_fields,
    read_records,
)
from nas_lightning.objectives.tables import (
    ARCHITECTURES,
    GenotypeTable,
    OracleAccuracy,
    TabularNasBench101,
    TabularNasBench201,
    ValidationAccuracy,
    all_notations,
    main,
    read,
    table_accuracy,
)
from nas_lightning.spaces import DartsSpace, NasBench1Shot1, NasBench101, NasBench201
from tests.objectives.conftest import write
from tests.objectives.tfrecords import checksum, evaluation, framed, metrics, record

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
    with initialize_config_module("nas_lightning.conf", version_base="1.3"):
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


# Files of NAS-Bench-201


def test_a_file_that_is_not_there(tmp_path, refusal):
    assert "expected a table of NAS-Bench-201" in refusal(read, tmp_path / "none.csv")


@pytest.mark.parametrize("column", range(4))
def test_a_missing_column(table, lines, refusal, column):
    header = ["arch", "cifar10", "cifar100", "imagenet16-120"]
    name = header.pop(column)
    path = table([[value for i, value in enumerate(row) if i != column] for row in lines[:3]], header)
    assert f"expected a column {name!r}" in refusal(read, path)


def test_too_few_architectures(table, lines, refusal):
    assert "expected 15625 architectures, got 15624" in refusal(read, table(lines[:-1]))


def test_an_architecture_twice(table, lines, refusal):
    message = refusal(read, table([*lines[:9], lines[4], *lines[10:]]))
    assert "expected each architecture once: also in row 5" in message
    assert message.endswith("row 10)")


@pytest.mark.parametrize(
    "arch", ["", "resnet", "|nor_conv_9x9~0|+|none~0|none~1|+|none~0|none~1|none~2|", " {}", "{} "]
)
def test_a_malformed_architecture(table, lines, refusal, arch):
    wrong = [arch.format(lines[2][0]), *lines[2][1:]]
    assert refusal(read, table([*lines[:2], wrong, *lines[3:]])).endswith("row 3)")


@pytest.mark.parametrize("value", ["", "-0.1", "100.1", "nan", "inf", "1e9", "ninety", "93,7"])
@pytest.mark.parametrize("column", [1, 3])
def test_a_value_that_is_no_percentage(table, lines, refusal, value, column):
    wrong = list(lines[1])
    wrong[column] = value
    message = refusal(read, table([lines[0], wrong, *lines[2:]]))
    assert "as a percentage from 0 to 100" in message
    assert message.endswith("row 2)")


def test_a_value_too_few_or_too_many(table, lines, refusal):
    for wrong in (lines[3][:-1], [*lines[3], "1"]):
        message = refusal(read, table([*lines[:3], wrong, *lines[4:]]))
        assert "expected 4 values" in message
        assert message.endswith("row 4)")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"\n\n", b"PK\x03\x04", b'"arch', b"arch,arch\n"])
@pytest.mark.parametrize("name", ["t.csv", "t.pickle.pbz2", "t.pth", "t.parquet", "t.xlsx"])
def test_files_that_are_something_else(tmp_path, refusal, content, name):
    path = tmp_path / name
    path.write_bytes(content)
    assert refusal(read, path)


def test_a_cut_file(whole, tmp_path, refusal):
    content = whole.read_bytes()
    for size in (20, 1000, len(content) // 2, len(content) - 20):
        path = tmp_path / "cut.csv"
        path.write_bytes(content[:size])
        assert refusal(read, path)


def test_folders_are_taken_for_official_ones(tmp_path, refusal):
    assert "--trust" in refusal(read, tmp_path)
    message = refusal(lambda: read(tmp_path, trust=True))
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
    columns = official.columns(api, forget=True)
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
    columns = official.read(folder, trust=True)
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


# NAS-Bench-101


NASBENCH101_SPACE = NasBench101()


def draw_weights_nasbench101(count: int) -> list[Genotype]:
    """Modules of different names."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    while len(found) < count:
        genotype = NASBENCH101_SPACE.sample(generator)
        found.setdefault(NASBENCH101_SPACE.hash(genotype), genotype)
    return list(found.values())


def accuracies(place: int, epochs: int, run: int) -> tuple[float, float]:
    """Validation and test accuracy, made up."""
    return 0.5 + place / 100 + epochs / 1000 + run / 500, 0.4 + place / 100 + run / 250


def lines(genotypes, lengths=(108,), runs=3) -> list[bytes]:
    found = []
    for place, genotype in enumerate(genotypes):
        digits, ops = NASBENCH101_SPACE.notation(genotype).split(":")
        for epochs in lengths:
            for run in range(runs):
                valid, test = accuracies(place, epochs, run)
                three = [
                    evaluation(0, 0, 0.1, 0.1, 0.1),
                    evaluation(epochs / 2, 50, 0.2, 0.2, 0.2),
                    evaluation(epochs, 100 + run, 1.0, valid, test),
                ]
                found.append(
                    record(
                        NASBENCH101_SPACE.hash(genotype), epochs, digits, ops, metrics(three, 1000 + place)
                    )
                )
    return found


@pytest.fixture(scope="module")
def genotypes():
    return draw_weights_nasbench101(6)


@pytest.fixture
def write(tmp_path):
    """`write(lines)`: an official file of them."""

    def run(data: list[bytes]):
        path = tmp_path / "nasbench.tfrecord"
        path.write_bytes(b"".join(map(framed, data)))
        return path

    return run


@pytest.fixture
def table(write, genotypes, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    target = tmp_path / "tables" / "nasbench101.parquet"
    main(["convert", str(write(lines(genotypes, (12, 108)))), str(target), "--partial"])
    assert capsys.readouterr().out.startswith("6 modules, hash, module, parameters, seconds, cifar10, ")
    return target


def test_checksums():
    """The published check value, RFC 3720's examples, and many strings at once against one bit at a time."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    random = np.random.default_rng(0)
    strings = [random.bytes(int(length)) for length in random.integers(0, 90, 40)]
    assert [mask_checksum(crc) for crc in crc32c_of_each(strings)] == [checksum(string) for string in strings]
    assert [mask_checksum(crc32c(string)) for string in strings] == [checksum(string) for string in strings]
    assert crc32c_of_each([]) == []


def test_what_is_written_is_read(table, genotypes):
    benchmark = TabularNasBench101(table)
    for place, genotype in enumerate(genotypes):
        entry = benchmark.query(genotype)
        by_run = {epochs: [accuracies(place, epochs, run) for run in range(3)] for epochs in (12, 108)}
        test = 100 * statistics.mean(test for _, test in by_run[108])
        assert entry.test == {"cifar10": pytest.approx(test)}
        assert entry.valid == {"cifar10": pytest.approx(100 * statistics.mean(v for v, _ in by_run[108]))}
        assert entry.valid_12 == {"cifar10": pytest.approx(100 * statistics.mean(v for v, _ in by_run[12]))}
        assert benchmark.rank(genotype) == len(genotypes) - place  # later ones are better
        assert benchmark.describe(genotype) == {
            "true_accuracy": pytest.approx(test / 100),
            "true_rank": len(genotypes) - place,
        }
    assert benchmark.best() == genotypes[-1]
    assert [path.name for path in table.parent.iterdir()] == [table.name]


def test_the_columns_of_a_run(write, genotypes):
    columns = official101.read(write(lines(genotypes)), partial=True)
    assert columns["seconds"] == [101.0] * 6
    assert columns["parameters"] == [1000 + place for place in range(6)]
    assert columns["module"] == [NASBENCH101_SPACE.notation(genotype) for genotype in genotypes]
    assert "cifar10-valid-12" not in columns


def test_a_length_that_not_all_were_trained_for_is_left_out(write, genotypes):
    data = lines(genotypes) + lines(genotypes[:2], (36,))
    assert "cifar10-valid-36" not in official101.read(write(data), partial=True)


def test_modules_are_found_in_any_order_of_their_vertices(table, genotypes):
    """And with vertices that lead nowhere, as NAS-Bench-1Shot1 has them."""
    benchmark = TabularNasBench101(table)
    for genotype in genotypes:
        module = NASBENCH101_SPACE.module(genotype)
        loose = NASBENCH101_SPACE.genotype(module)
        cell = loose["cell"]
        extra = [*cell.edges, ("maxpool3x3", 0, cell.nodes)]
        unpruned = Genotype("nasbench101", {"cell": type(cell)(extra, 1, cell.output)})
        assert benchmark.query(unpruned) == benchmark.query(genotype)


def test_objectives(table, genotypes):
    benchmark = TabularNasBench101(table)
    assert ValidationAccuracy(benchmark).name == ValidationAccuracy(benchmark, 108).name == "valid_accuracy"
    short = table_accuracy(benchmark)
    assert short.name == "valid_accuracy_12_epochs"
    assert short(genotypes[0]) == benchmark.query(genotypes[0]).valid_12["cifar10"]
    with pytest.raises(InputError, match="expected a table with the column 'cifar10-valid-36'"):
        ValidationAccuracy(benchmark, 36)
    with pytest.raises(InputError, match="expected 4, 12, 36 or 108 epochs, got 200"):
        ValidationAccuracy(benchmark, 200)


def test_spaces(table):
    benchmark = TabularNasBench101(table)
    for space in (NASBENCH101_SPACE, *map(NasBench1Shot1, (1, 2, 3))):
        benchmark.check_space(space)
    with pytest.raises(InputError, match="expected space=nasbench101 or space=nasbench1shot1"):
        benchmark.check_space(NasBench201())


def test_a_module_that_the_table_does_not_have(table, genotypes):
    known = {NASBENCH101_SPACE.hash(genotype) for genotype in genotypes}
    other = next(g for g in draw_weights_nasbench101(40) if NASBENCH101_SPACE.hash(g) not in known)
    with pytest.raises(InputError, match="expected a module of the table's 6"):
        TabularNasBench101(table).query(other)


def test_the_configuration_nasbench101(table):
    with initialize_config_module("nas_lightning.conf", version_base="1.3"):
        cfg = compose(overrides=["+benchmark=nasbench101", f"benchmark.path={table}"])
    assert len(instantiate(cfg.benchmark).modules) == 6


def test_tables_that_are_none(tmp_path, table, refusal):
    assert "convert FILE.tfrecord TABLE.parquet" in refusal(TabularNasBench101, tmp_path / "a.tfrecord")
    assert "expected a table" in refusal(TabularNasBench101, tmp_path / "a.parquet")
    for text, said in (
        ("hash,module\na,b\n", "expected a column 'cifar10'"),
        ("hash,module,cifar10\na,b,101\n", "as a percentage from 0 to 100"),
        ("hash,module,cifar10\na,b,1\na,c,2\n", "each module once"),
        ("hash,module,cifar10\n", "at least one"),
    ):
        path = tmp_path / "a.csv"
        path.write_text(text)
        assert said in refusal(TabularNasBench101, path)


# Damage


@pytest.mark.parametrize("where", ["length", "checksum of length", "data", "checksum of data"])
@pytest.mark.parametrize("number", [1, 4, 9])
def test_a_damaged_byte_is_refused_with_the_records_number(write, refusal, genotypes, where, number):
    data = lines(genotypes[:3])
    path = write(data)
    content = bytearray(path.read_bytes())
    start = sum(len(framed(one)) for one in data[: number - 1])
    offset = {
        "length": 1,
        "checksum of length": 9,
        "data": 30,
        "checksum of data": 12 + len(data[number - 1]),
    }
    content[start + offset[where]] ^= 0x10
    path.write_bytes(content)
    message = refusal(official101.read, path)
    assert "damaged" in message
    assert message.endswith(f"record {number})")


def test_a_cut_file_is_refused_with_the_records_number(write, refusal, genotypes):
    data = lines(genotypes[:2])
    path = write(data)
    content, ends = path.read_bytes(), np.cumsum([len(framed(one)) for one in data])
    for size in np.random.default_rng(0).integers(1, len(content), 60).tolist():
        path.write_bytes(content[:size])
        message = refusal(lambda: official101.read(path, partial=True))
        number = int(np.searchsorted(ends, size)) + 1
        if size in ends:
            assert message is None
        else:
            assert "cut off" in message
            assert message.endswith(f"record {number})")


def test_damage_anywhere_is_found(write, refusal, genotypes):
    """A bit of any byte."""
    path = write(lines(genotypes[:2], runs=1))
    content, random = path.read_bytes(), np.random.default_rng(1)
    for place in random.integers(0, len(content), 150).tolist():
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        message = refusal(lambda: official101.read(path, partial=True))
        assert message is not None
        assert "record" in message


def test_random_bytes_are_refused(tmp_path, refusal):
    random = np.random.default_rng(2)
    for size in random.integers(1, 400, 50).tolist():
        path = tmp_path / "noise.tfrecord"
        path.write_bytes(random.bytes(size))
        assert "record 1)" in refusal(official101.read, path)


def test_records_that_say_something_else(write, refusal, genotypes):
    (good,) = lines(genotypes[1:2], runs=1)
    name, ops = NASBENCH101_SPACE.hash(genotypes[1]), NASBENCH101_SPACE.notation(genotypes[1]).split(":")
    end = evaluation(108, 1, 1, 0.9, 0.9)
    message = metrics([end, end, end], 1)
    wrong = {
        "expected JSON": [b"", b"[]", b"{}", b"[1, 2]", b"\xff", good[:-1], good.replace(b'"]', b'!"]')],
        "epochs of": [record(name, 7, *ops, message), good.replace(b"108,", b"true,")],
        "the hash of the record's module": [record("0" * 32, 108, *ops, message)],
        "at the start, half way and at the end, got 2": [record(name, 108, *ops, metrics([end, end], 1))],
        "an accuracy from 0 to 1, got 1.5": [
            record(name, 108, *ops, metrics([end, end, evaluation(108, 1, 1, 1.5, 0.5)], 1))
        ],
        "message: damaged": [record(name, 108, *ops, message[:-1])],
    }
    for said, cases in wrong.items():
        for case in cases:
            text = refusal(official101.read, write([good, case]))
            assert said in text
            assert text.endswith("record 2)")


def test_a_message_is_read_or_refused(refusal):
    """Random bytes never lead to anything but fields or a refusal."""
    random = np.random.default_rng(3)
    for size in random.integers(0, 40, 300).tolist():
        refusal(lambda: list(read_fields(random.bytes(size))))  # noqa: B023
    assert list(read_fields(bytes([0x0D, 0, 0, 0x80, 0x3F]))) == [(1, 1.0)]  # four bytes
    for damaged in (b"\x80" * 11, b"\x0b", b"\x09\x00", b"\x0a\x05ab"):
        assert refusal(lambda: list(read_fields(damaged)))  # noqa: B023


def test_an_incomplete_file_is_refused_unless_it_may_be(write, refusal, genotypes, tmp_path):
    path = write(lines(genotypes))
    assert "expected 423,624 modules (fewer: --partial), got 6" in refusal(official101.read, path)
    assert "a run of 108 epochs for each module" in refusal(
        lambda: official101.read(write(lines(genotypes, (12,))), partial=True)
    )
    assert "expected an official file" in refusal(official101.read, tmp_path / "none.tfrecord")
    empty = write([])
    assert "a run of 108 epochs" in refusal(lambda: official101.read(empty, partial=True))


def test_two_runs_instead_of_three(write, refusal, genotypes, monkeypatch):
    monkeypatch.setattr(official101, "MODULES", 6)
    data = lines(genotypes)
    assert refusal(official101.read, write(data)) is None
    message = refusal(official101.read, write(data[:-1]))
    assert f"3 runs of 108 epochs of module {NASBENCH101_SPACE.hash(genotypes[-1])}" in message


def test_more_records_than_are_checked_together(write, monkeypatch):
    monkeypatch.setattr("nas_lightning.objectives.table_formats._BATCH", 3)
    data = [bytes([number]) * number for number in range(1, 12)]
    assert list(read_records(write(data))) == data
    path = write(data)
    path.write_bytes(path.read_bytes()[:-1])
    found = []
    with pytest.raises(InputError, match=r"record 11\)$"):
        found.extend(iter(read_records(path)))
    assert found == data[:-1]


def test_a_command_that_cannot_work_is_one_line_and_writes_nothing_nasbench101(write, tmp_path, genotypes):
    source = write(lines(genotypes[:1]))
    for target in ("table.csv", "table.parquet"):
        with pytest.raises(SystemExit, match=r"^error: expected "):
            main(["convert", str(source), str(tmp_path / target)])
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


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


def test_a_sample_is_of_the_table_and_begins_with_the_smaller(rows, tmp_path):
    space = DartsSpace()
    lines = rows(space, 12)
    table = GenotypeTable(write(tmp_path / "t.csv", lines, ("genotype", "v", "w")), space)
    sample = table.sample(space, 12, seed=1)
    assert {space.notation(genotype) for genotype in sample} == {line[0] for line in lines}
    assert table.sample(space, 5, seed=1) == sample[:5]
    assert table.sample(space, 12, seed=2) != sample
    with pytest.raises(InputError, match="at most the table's 12 architectures, got 13"):
        table.sample(space, 13, seed=1)


def test_an_architecture_that_is_not_in_it(rows, tmp_path, generator):
    space = DartsSpace()
    table = GenotypeTable(write(tmp_path / "t.csv", rows(space), ("genotype", "v", "w")), space)
    other = space.sample(generator)
    assert table.describe(other) == {}
    with pytest.raises(InputError, match="expected an architecture of"):
        table.column("v", other)


@pytest.mark.parametrize(
    ("header", "changed", "message"),
    [
        (("cell", "v", "w"), {}, "expected a column genotype or arch, or columns matrix and ops"),
        (("arch", "v", "w"), {0: "resnet"}, r"row 2\)"),
        (("arch", "v", "w"), {1: "good"}, r"expected a number in v, got 'good' \(in .*row 2\)"),
        (("arch", "v", "w"), {2: "nan"}, "expected a number in w, got 'nan'"),
    ],
)
def test_a_wrong_file_is_one_line(rows, tmp_path, header, changed, message):
    lines = rows(NasBench201())
    lines[1] = [changed.get(index, entry) for index, entry in enumerate(lines[1])]
    with pytest.raises(InputError, match=message):
        GenotypeTable(write(tmp_path / "t.csv", lines, header), NasBench201())


def test_what_spreadsheets_write_is_read(rows, tmp_path):
    path, space = tmp_path / "t.csv", NasBench201()
    text = "".join(f"{','.join(map(str, line))}\r\n" for line in [("arch", "v", "w"), *rows(space)])
    path.write_bytes(text.encode("utf-8-sig") + b"\r\n\r\n")
    assert GenotypeTable(path, space).datasets == ("v", "w")
    path.write_text(text.replace(",", ";"), encoding="utf-8")
    with pytest.raises(InputError, match="expected commas between the columns, got 'arch;v;w'"):
        GenotypeTable(path, space)


def test_a_column_that_begins_without_a_number_is_not_passed_over(rows, tmp_path):
    lines = rows(NasBench201())
    lines[0][1] = "nan"
    path = write(tmp_path / "t.csv", lines, ("arch", "v", "w"))
    with pytest.raises(InputError, match=r"expected a number in v, got 'nan' \(in .*row 1\)"):
        GenotypeTable(path, NasBench201())


def test_other_mistakes(rows, tmp_path):
    lines = rows(NasBench201())
    path = write(tmp_path / "t.csv", lines, ("arch", "cifar10_valid", "test"))
    with pytest.raises(InputError, match="did you mean 'cifar10_valid'"):
        GenotypeTable(path, NasBench201(), "cifar10_vald")
    with pytest.raises(InputError, match="expected a table"):
        GenotypeTable(tmp_path / "none.csv", NasBench201())
    with pytest.raises(InputError, match="expected at least one architecture"):
        GenotypeTable(write(tmp_path / "e.csv", [], ("arch", "v")), NasBench201())
    with pytest.raises(InputError, match="validation accuracies"):
        GenotypeTable(path, NasBench201(), "test").validation_column()
    with pytest.raises(InputError, match="space=nasbench201"):
        GenotypeTable(path, NasBench201()).check_space(DartsSpace())
