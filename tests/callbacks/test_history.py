"""The history's file and the figures at the end."""

import pytest

from nas_lightning.callbacks import GenotypeHistory
from nas_lightning.runs.facts import read_history


def test_figures_at_the_end(tmp_path, tiny, trainer):
    fit = trainer(tmp_path / "run", 1, enable_checkpointing=True)
    fit.callbacks = [GenotypeHistory(tmp_path / "run")]
    fit.fit(tiny())
    made = sorted(path.name for path in (tmp_path / "run" / "figures").iterdir())
    assert made == ["genotype.png", "genotype.svg", "weights_cell.png", "weights_cell.svg"]


def test_a_line_cut_off_by_a_kill_does_not_count(tmp_path):
    file = tmp_path / "history.jsonl"
    file.write_text('{"epoch": 0, "genotypes": [], "groups": {}}\n{"epoch": 1, "geno')
    assert [entry["epoch"] for entry in read_history(file)] == [0]


@pytest.mark.parametrize("line", ["{", "[]", '{"genotypes": []}', '{"epoch": null}'])
def test_a_broken_line_is_named(tmp_path, refusal, line):
    file = tmp_path / "history.jsonl"
    file.write_text(f'{{"epoch": 0}}\n{line}\n')
    message = refusal(read_history, file)
    assert message.startswith("expected an epoch in JSON")
    assert message.endswith("history.jsonl:2)")
