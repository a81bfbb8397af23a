"""A script that knows timm only, as timm's own do, run with derived networks among the models."""

import sys

import pytest

from nas_lightning.models.timm import main

SCRIPT = """
import argparse
import timm
import torch
from timm.utils import ParseKwargs
from beside import CLASSES

parser = argparse.ArgumentParser()
parser.add_argument("--model")
parser.add_argument("--model-kwargs", nargs="*", default={}, action=ParseKwargs)
parser.add_argument("--grad-checkpointing", action="store_true")
options = parser.parse_args()
model = timm.create_model(options.model, num_classes=CLASSES, **options.model_kwargs)
if options.grad_checkpointing:
    model.set_grad_checkpointing(enable=True)
if __name__ == "__main__":
    print(tuple(model(torch.zeros(2, 3, 8, 8)).shape))
"""
CELL = "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|skip_connect~2|"


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", sys.argv[:])
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    (tmp_path / "beside.py").write_text("CLASSES = 5\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    return str(tmp_path / "train.py")


def test_a_script_finds_the_models(script, capsys):
    sizes = ["channels=4", "cells=1"]
    main([script, "--model", "nas_nasbench201", "--model-kwargs", f"genotype={CELL}", *sizes])
    assert capsys.readouterr().out == "(2, 5)\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected an architecture, such as genotype=darts_v2"),
        (["--model-kwargs", "genotype=darts_v3"], "did you mean 'darts_v2'?"),
        (["--model-kwargs", "genotype=darts_v2", "cells=0"], "cell"),
        (
            ["--model-kwargs", "genotype=darts_v2", "cells=1", "--grad-checkpointing"],
            "no gradient checkpoint",
        ),
    ],
)
def test_mistakes_are_one_line(script, arguments, message):
    with pytest.raises(SystemExit) as end:
        main([script, "--model", "nas_darts", *arguments])
    assert str(end.value).startswith("error: expected")
    assert message in str(end.value)


def test_a_script_that_is_not_there(tmp_path):
    for arguments in ([], [str(tmp_path / "train.py")]):
        with pytest.raises(SystemExit, match="error: expected a script of timm's"):
            main(arguments)
