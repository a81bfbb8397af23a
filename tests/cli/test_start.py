"""What a command imports before its first step: seconds that nobody sees the reason of."""

import pytest

from nas_lightning.measure.start import SEARCH, STOP, start

HEAVY = {"timm", "torchvision", "wandb", "sklearn", "scipy", "pandas", "matplotlib.pyplot", "optuna"}


def loaded(tmp_path, *words):
    _, out = start(SEARCH, (*words, STOP), str(tmp_path))
    return set(out.splitlines()[-1].removeprefix("loaded:").split())


@pytest.mark.parametrize("strategy", ["pr_darts", "drnas"])
def test_a_search_loads_little_before_its_first_step(tmp_path, strategy):
    modules = loaded(tmp_path, "supernet.channels=4", "supernet.cells=1", f"strategy={strategy}")
    assert {"torch", "pytorch_lightning", "torchmetrics"} <= modules
    assert not HEAVY & modules - ({"scipy"} if strategy == "drnas" else set())


def test_a_model_file_is_loaded_without_timm(tmp_path):
    code = "from nas_lightning import load; print(*sys.modules)"
    _, out = start(code, (), str(tmp_path))
    assert "torch" in out.split()
    assert not {*HEAVY, "pytorch_lightning", "torchmetrics", "torch._dynamo"} & set(out.split())


@pytest.mark.slow
def test_a_users_own_part_finds_all_of_torchmetrics(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torchmetrics.utilities.plot\nfrom pytorch_lightning import Callback\n"
        "class Plotting(Callback):\n    def __init__(self):\n        torchmetrics.utilities.plot.plt.figure\n"
    )
    words = ("supernet.channels=4", "supernet.cells=1", "+callbacks.mine._target_=mine.Plotting")
    assert {"mine", "matplotlib.pyplot", "torchvision"} <= loaded(tmp_path, *words)
