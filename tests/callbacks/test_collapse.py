"""The warning of a collapse: when, how often, and what it stops."""

import logging

import pytest
import torch

from nas_lightning.callbacks import CollapseWarning
from nas_lightning.callbacks.guards import skip_share
from nas_lightning.spaces import DartsSpace, NasBench201


def test_share_of_cells_counted_by_hand():
    space = DartsSpace()
    normal = [("skip_connect", 0), ("sep_conv_3x3", 1), ("skip_connect", 0), ("skip_connect", 1)]
    reduce = [("max_pool_3x3", 0), ("max_pool_3x3", 1), ("skip_connect", 0), ("max_pool_3x3", 1)]
    assert skip_share([space.parse({"normal": normal, "reduce": reduce})]) == 3 / 4
    assert skip_share([space.parse({"normal": reduce, "reduce": reduce})]) == 1 / 4
    parse = NasBench201().parse
    nothing = parse("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")
    skips = parse("|skip_connect~0|+|none~0|skip_connect~1|+|none~0|none~1|none~2|")
    assert skip_share([nothing]) == 0
    assert skip_share([skips]) == 1
    assert skip_share([nothing, skips]) == 1


def leaning(module, skips):
    """Let `module` derive a cell with that many skips of six, epoch by epoch."""

    def derive():
        ops = ["skip_connect" if i < skips[module.current_epoch] else "nor_conv_3x3" for i in range(6)]
        text = "|{}~0|+|{}~0|{}~1|+|{}~0|{}~1|{}~2|".format(*ops)
        return [module.space.parse(text)]

    module.derive = derive
    return module


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if "collaps" in record.getMessage()]


def test_warns_once_after_its_patience(tmp_path, tiny, trainer, caplog):
    callback = CollapseWarning(threshold=0.5, patience=2)
    fit = trainer(tmp_path, 6, callback)
    with caplog.at_level(logging.WARNING, "nas_lightning"):
        fit.fit(leaning(tiny(), [3, 2, 3, 4, 5, 6]))
    (message,) = warnings_of(caplog)
    assert "67 % of a cell's operations are skips after 4 epochs" in message
    assert len(message.splitlines()) == 1
    assert fit.current_epoch == 6
    assert float(fit.callback_metrics["skip_share"]) == 1


def test_stays_silent_below_the_threshold(tmp_path, tiny, trainer, caplog):
    with caplog.at_level(logging.WARNING, "nas_lightning"):
        trainer(tmp_path, 3, CollapseWarning(patience=1)).fit(leaning(tiny(), [2, 2, 2]))
    assert warnings_of(caplog) == []


def test_stops_where_it_is_told_to(tmp_path, tiny, trainer):
    fit = trainer(tmp_path, 6, CollapseWarning(threshold=0.25, patience=1, stop=True))
    fit.fit(leaning(tiny(), [0, 1, 2, 2, 2, 2]))
    assert fit.current_epoch == 3


def test_counts_on_after_a_restart(tmp_path, tiny, trainer, caplog):
    skips = [4, 4, 4, 4]
    trainer(tmp_path, 2, CollapseWarning(patience=3)).fit(leaning(tiny(), skips))
    fit = trainer(tmp_path, 4, CollapseWarning(patience=3, stop=True))
    with caplog.at_level(logging.WARNING, "nas_lightning"):
        fit.fit(leaning(tiny(), skips), ckpt_path=tmp_path / "checkpoints" / "last.ckpt")
    assert fit.current_epoch == 3
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize("options", [{"threshold": 0}, {"threshold": 1.1}, {"patience": 0}])
def test_refuses_what_cannot_be(refusal, options):
    assert next(iter(options)) in refusal(lambda: CollapseWarning(**options))


def test_share_reaches_the_metrics_file(tmp_path, tiny, trainer):
    trainer(tmp_path, 1, CollapseWarning()).fit(leaning(tiny(), [3]))
    header, *rows = (tmp_path / "metrics.csv").read_text().splitlines()
    column = header.split(",").index("skip_share")
    assert torch.tensor(
        [float(row.split(",")[column]) for row in rows if row.split(",")[column]]
    ).tolist() == [0.5]


def test_whole_architectures_that_are_compared_cannot_collapse(tmp_path, tiny, trainer, caplog):
    callback, module = CollapseWarning(threshold=0.5, patience=1), leaning(tiny(), [6, 6])
    module.scores = dict  # nothing is scored edge by edge
    fit = trainer(tmp_path, 2, callback)
    with caplog.at_level(logging.WARNING, "nas_lightning"):
        fit.fit(module)
    assert not warnings_of(caplog)
    assert "skip_share" not in fit.callback_metrics
