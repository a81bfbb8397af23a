"""NAS-Bench-101's table: official files that the tests write, read back; damage is found and numbered."""

import statistics

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.objectives import table_formats
from nas_lightning.objectives.convert import main
from nas_lightning.objectives.table_formats import (
    crc32c,
    crc32c_of_each,
    mask_checksum,
    read_fields,
    read_records,
)
from nas_lightning.objectives.tables import TabularNasBench101, ValidationAccuracy, table_accuracy
from nas_lightning.options import config_folder
from nas_lightning.spaces import NasBench1Shot1, NasBench101, NasBench201
from tests.objectives.tfrecords import checksum, evaluation, framed, metrics, record

SPACE = NasBench101()


def draw(count: int) -> list[Genotype]:
    """Modules of different names."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    while len(found) < count:
        genotype = SPACE.sample(generator)
        found.setdefault(SPACE.hash(genotype), genotype)
    return list(found.values())


def accuracies(place: int, epochs: int, run: int) -> tuple[float, float]:
    """Validation and test accuracy, made up."""
    return 0.5 + place / 100 + epochs / 1000 + run / 500, 0.4 + place / 100 + run / 250


def lines(genotypes, lengths=(108,), runs=3) -> list[bytes]:
    found = []
    for place, genotype in enumerate(genotypes):
        digits, ops = SPACE.notation(genotype).split(":")
        for epochs in lengths:
            for run in range(runs):
                valid, test = accuracies(place, epochs, run)
                three = [
                    evaluation(0, 0, 0.1, 0.1, 0.1),
                    evaluation(epochs / 2, 50, 0.2, 0.2, 0.2),
                    evaluation(epochs, 100 + run, 1.0, valid, test),
                ]
                found.append(record(SPACE.hash(genotype), epochs, digits, ops, metrics(three, 1000 + place)))
    return found


@pytest.fixture(scope="module")
def genotypes():
    return draw(6)


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
    main([str(write(lines(genotypes, (12, 108)))), str(target), "--partial"])
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
    columns = table_formats.read_official101(write(lines(genotypes)), partial=True)
    assert columns["seconds"] == [101.0] * 6
    assert columns["parameters"] == [1000 + place for place in range(6)]
    assert columns["module"] == [SPACE.notation(genotype) for genotype in genotypes]
    assert "cifar10-valid-12" not in columns


def test_incomplete_columns_are_left_out(write, genotypes):
    data = lines(genotypes) + lines(genotypes[:2], (36,))
    assert "cifar10-valid-36" not in table_formats.read_official101(write(data), partial=True)


def test_modules_are_found_in_any_order_of_their_vertices(table, genotypes):
    """And with vertices that lead nowhere, as NAS-Bench-1Shot1 has them."""
    benchmark = TabularNasBench101(table)
    for genotype in genotypes:
        module = SPACE.module(genotype)
        loose = SPACE.genotype(module)
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
    with pytest.raises(InputError, match="The table must have the column 'cifar10-valid-36'"):
        ValidationAccuracy(benchmark, 36)
    with pytest.raises(InputError, match="`epochs` must be 4, 12, 36 or 108, got 200"):
        ValidationAccuracy(benchmark, 200)


def test_spaces(table):
    benchmark = TabularNasBench101(table)
    for space in (SPACE, *map(NasBench1Shot1, (1, 2, 3))):
        benchmark.check_space(space)
    with pytest.raises(InputError, match="needs space=nasbench101 or space=nasbench1shot1"):
        benchmark.check_space(NasBench201())


def test_missing_module_raises(table, genotypes):
    known = {SPACE.hash(genotype) for genotype in genotypes}
    other = next(g for g in draw(40) if SPACE.hash(g) not in known)
    with pytest.raises(InputError, match="The architecture must be"):
        TabularNasBench101(table).query(other)


def test_the_configuration(table):
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        cfg = compose(overrides=["+benchmark=nasbench101", f"benchmark.path={table}"])
    assert len(instantiate(cfg.benchmark).modules) == 6


def test_wrong_tables_raise(tmp_path, table, refusal):
    assert "convert FILE.tfrecord TABLE.parquet" in refusal(TabularNasBench101, tmp_path / "a.tfrecord")
    assert "The file must be a table" in refusal(TabularNasBench101, tmp_path / "a.parquet")
    for text, said in (
        ("hash,module\na,b\n", "There must be a column 'cifar10'"),
        ("hash,module,cifar10\na,b,101\n", "must be a percentage from 0 to 100"),
        ("hash,module,cifar10\na,b,1\na,c,2\n", "Modules must be distinct"),
        ("hash,module,cifar10\n", "at least one"),
    ):
        path = tmp_path / "a.csv"
        path.write_text(text)
        assert said in refusal(TabularNasBench101, path)


# Damage


@pytest.mark.parametrize("where", ["length", "checksum of length", "data", "checksum of data"])
@pytest.mark.parametrize("number", [1, 4, 9])
def test_damaged_byte_names_the_record(write, refusal, genotypes, where, number):
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
    message = refusal(table_formats.read_official101, path)
    assert "damaged" in message
    assert message.endswith(f"record {number})")


def test_truncated_file_names_the_record(write, refusal, genotypes):
    data = lines(genotypes[:2])
    path = write(data)
    content, ends = path.read_bytes(), np.cumsum([len(framed(one)) for one in data])
    for size in np.random.default_rng(0).integers(1, len(content), 60).tolist():
        path.write_bytes(content[:size])
        message = refusal(lambda: table_formats.read_official101(path, partial=True))
        number = int(np.searchsorted(ends, size)) + 1
        if size in ends:
            assert message is None
        else:
            assert "The file is damaged: the record is incomplete" in message
            assert message.endswith(f"record {number})")


def test_damage_anywhere_is_found(write, refusal, genotypes):
    """A bit of any byte."""
    path = write(lines(genotypes[:2], runs=1))
    content, random = path.read_bytes(), np.random.default_rng(1)
    for place in random.integers(0, len(content), 150).tolist():
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        message = refusal(lambda: table_formats.read_official101(path, partial=True))
        assert message is not None
        assert "record" in message


def test_random_bytes_raise(tmp_path, refusal):
    random = np.random.default_rng(2)
    for size in random.integers(1, 400, 50).tolist():
        path = tmp_path / "noise.tfrecord"
        path.write_bytes(random.bytes(size))
        assert "record 1)" in refusal(table_formats.read_official101, path)


def test_wrong_records_raise(write, refusal, genotypes):
    (good,) = lines(genotypes[1:2], runs=1)
    name, ops = SPACE.hash(genotypes[1]), SPACE.notation(genotypes[1]).split(":")
    end = evaluation(108, 1, 1, 0.9, 0.9)
    message = metrics([end, end, end], 1)
    wrong = {
        "must be JSON": [b"", b"[]", b"{}", b"[1, 2]", b"\xff", good[:-1], good.replace(b'"]', b'!"]')],
        "epochs of": [record(name, 7, *ops, message), good.replace(b"108,", b"true,")],
        "must be that of the record's module": [record("0" * 32, 108, *ops, message)],
        "at the start, halfway, and at the end, got 2": [record(name, 108, *ops, metrics([end, end], 1))],
        "Accuracies must be from 0 to 1, got 1.5": [
            record(name, 108, *ops, metrics([end, end, evaluation(108, 1, 1, 1.5, 0.5)], 1))
        ],
        "is damaged": [record(name, 108, *ops, message[:-1])],
    }
    for said, cases in wrong.items():
        for case in cases:
            text = refusal(table_formats.read_official101, write([good, case]))
            assert said in text
            assert text.endswith("record 2)")


def test_random_messages_are_parsed_or_raise(refusal):
    """Random bytes never lead to anything but fields or a refusal."""
    random = np.random.default_rng(3)
    for size in random.integers(0, 40, 300).tolist():
        refusal(lambda: list(read_fields(random.bytes(size))))
    assert list(read_fields(bytes([0x0D, 0, 0, 0x80, 0x3F]))) == [(1, 1.0)]  # four bytes
    for damaged in (b"\x80" * 11, b"\x0b", b"\x09\x00", b"\x0a\x05ab"):
        assert refusal(lambda: list(read_fields(damaged)))


def test_incomplete_file_needs_partial(write, refusal, genotypes, tmp_path):
    path = write(lines(genotypes))
    assert "There must be 423,624 modules (fewer: --partial), got 6" in refusal(
        table_formats.read_official101, path
    )
    assert "must have a run of 108 epochs" in refusal(
        lambda: table_formats.read_official101(write(lines(genotypes, (12,))), partial=True)
    )
    assert "Cannot read the official file" in refusal(
        table_formats.read_official101, tmp_path / "none.tfrecord"
    )
    empty = write([])
    assert "must have a run of 108 epochs" in refusal(
        lambda: table_formats.read_official101(empty, partial=True)
    )


def test_two_runs_instead_of_three(write, refusal, genotypes, monkeypatch):
    monkeypatch.setattr(table_formats, "MODULES", 6)
    data = lines(genotypes)
    assert refusal(table_formats.read_official101, write(data)) is None
    message = refusal(table_formats.read_official101, write(data[:-1]))
    assert f"3 runs of 108 epochs of module {SPACE.hash(genotypes[-1])}" in message


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


def test_failing_command_is_one_line_and_writes_nothing(write, tmp_path, genotypes):
    source = write(lines(genotypes[:1]))
    for target in ("table.csv", "table.parquet"):
        with pytest.raises(SystemExit, match=r"^error: "):
            main([str(source), str(tmp_path / target)])
    assert [path.name for path in tmp_path.iterdir()] == [source.name]
