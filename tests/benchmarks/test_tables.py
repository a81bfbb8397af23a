"""Files that are wrong end in one line that says where; official files are read through their packages."""

import bz2
import pickle

import pytest

from nas_lightning.objectives import table_formats as official
from nas_lightning.objectives.tables import all_notations, read


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
