"""What a terminal and a pipe get to see."""

import io

from nas_lightning.callbacks import SearchProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_pipe_gets_one_line_an_epoch(tmp_path, tiny, trainer, capsys):
    trainer(tmp_path, 12, SearchProgressBar(), enable_progress_bar=True).fit(tiny())
    out, err = capsys.readouterr()
    lines = [line for line in out.splitlines() if line.startswith("epoch")]
    assert len(lines) == 12
    assert lines[0].startswith("epoch  1/12   train ")
    assert lines[-1].startswith("epoch 12/12   train ")
    assert all("%" in line and "valid" in line and len(line) < 80 for line in lines)
    assert "\r" not in out + err


def test_a_terminal_gets_a_bar_with_short_names(tmp_path, tiny, trainer, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    trainer(tmp_path, 2, SearchProgressBar(), enable_progress_bar=True).fit(tiny())
    shown = screen.getvalue()
    assert "epoch 2/2: 100%" in shown
    assert "train=" in shown
    assert "v_num" not in shown
    assert "\nepoch" not in shown  # one line, rewritten


def test_a_side_that_an_epoch_leaves_alone_is_not_repeated(tmp_path, tiny, trainer, capsys):
    search = tiny()
    whole = search.log_dict

    def only_first_epochs(values, **options):
        late = {"num_scored": 40.0 + search.current_epoch}
        whole(values if search.current_epoch < 2 else late, **options)

    search.log_dict = only_first_epochs
    search.validation_step = lambda batch, batch_idx: None
    trainer(tmp_path, 4, SearchProgressBar(), enable_progress_bar=True).fit(search)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    assert ["train" in line for line in lines] == [True, True, False, False]
    assert lines[2:] == ["epoch 3/4   scored 42", "epoch 4/4   scored 43"]
