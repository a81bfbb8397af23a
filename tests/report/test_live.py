"""The page of a run that goes on."""

from types import SimpleNamespace

import pytest

from nas_lightning.genotype import FILE_NAME
from nas_lightning.report.page import LivePage, write_report
from tests.report.reading import Page
from tests.report.searches import GENOTYPES, write_search


@pytest.fixture
def going(tmp_path):
    """A search after its third epoch."""
    folder = write_search(tmp_path / "search")
    (folder / FILE_NAME).unlink()
    return folder


def end_epoch(callback, epoch=0, should_stop=False):
    steps = {"max_steps": -1, "global_step": 0, "max_epochs": 10, "callbacks": []}
    trainer = SimpleNamespace(current_epoch=epoch, should_stop=should_stop, **steps)
    callback.on_train_epoch_end(trainer, None)


def test_it_shows_the_last_cell_and_loads_itself_again(going):
    callback = LivePage(going, seconds=7.4)
    callback.on_train_start(None, None)
    callback._due = 0.0
    end_epoch(callback)
    text = (going / "report.html").read_text(encoding="utf-8")
    assert '<meta http-equiv="refresh" content="7">' in text
    page = Page(going / "report.html")
    assert "(not finished)" in page.text
    assert "as of" in page.text
    assert "resume=" in page.sections["What to type next"]
    assert "Left out" not in page.sections["Architecture"]


def test_a_page_that_was_made_anew_stays_as_it_is(going):
    assert "refresh" not in write_report(going).read_text(encoding="utf-8")


def test_pages_lie_apart_by_the_time_that_was_asked_for(going):
    callback = LivePage(going, seconds=1000)
    callback.on_train_start(None, None)
    end_epoch(callback)
    assert not (going / "report.html").exists()
    callback._due = 0.0
    end_epoch(callback)
    (going / "report.html").unlink()
    end_epoch(callback)
    assert not (going / "report.html").exists()


@pytest.mark.parametrize("last", [{"epoch": 9}, {"should_stop": True}])
def test_the_end_of_the_last_epoch_waits_for_no_page(going, last):
    callback = LivePage(going, seconds=1)
    callback._due = 0.0
    end_epoch(callback, **last)
    assert not (going / "report.html").exists()


def test_a_page_that_cannot_be_written_ends_no_training(tmp_path):
    callback = LivePage(tmp_path / "nowhere", seconds=5)
    with pytest.warns(UserWarning, match="report.html is written at the end only: expected a run's folder"):
        end_epoch(callback)
    end_epoch(callback)  # said once


def test_the_cell_is_that_of_the_last_epoch(going):
    history = (going / "history.jsonl").read_text(encoding="utf-8").splitlines()
    for epochs, genotype in ((3, GENOTYPES[0]), (2, GENOTYPES[1])):
        (going / "history.jsonl").write_text("\n".join(history[:epochs]) + "\n", encoding="utf-8")
        assert str(genotype) in Page(write_report(going)).blocks
