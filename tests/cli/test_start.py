"""What a command imports before its first step: seconds that nobody sees the reason of."""

import subprocess
import sys

import pytest

from benchmarks.start import SEARCH, STOP, STOP_AFTER, start

HEAVY = {"timm", "torchvision", "wandb", "sklearn", "scipy", "pandas", "matplotlib", "optuna"}
HEAVY |= {"torch._dynamo", "torch._inductor", "sympy"}  # torch's compiler


def loaded(tmp_path, *words, stop=STOP):
    _, out = start(SEARCH, (*words, stop), str(tmp_path))
    return set(out.splitlines()[-1].removeprefix("loaded:").split())


@pytest.mark.parametrize(
    ("strategy", "stop"),
    [
        ("pr_darts", STOP_AFTER),
        ("drnas", STOP_AFTER),
        pytest.param("pr_darts", STOP, marks=pytest.mark.slow),
        pytest.param("gaea", STOP_AFTER, marks=pytest.mark.slow),
    ],
)
def test_a_search_loads_little_before_its_first_step_and_within(tmp_path, strategy, stop):
    modules = loaded(tmp_path, "supernet.channels=4", "supernet.cells=1", f"strategy={strategy}", stop=stop)
    assert {"torch", "pytorch_lightning", "torchmetrics"} <= modules
    assert not HEAVY & modules - ({"scipy"} if strategy == "drnas" else set())


def test_a_model_file_is_loaded_without_timm(tmp_path):
    code = "from nas_lightning import load; print(*sys.modules)"
    _, out = start(code, (), str(tmp_path))
    assert "torch" in out.split()
    assert not {*HEAVY, "pytorch_lightning", "torchmetrics"} & set(out.split())


@pytest.mark.slow
def test_a_users_own_part_finds_all_of_torchmetrics(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torchmetrics.utilities.plot\nfrom pytorch_lightning import Callback\n"
        "class Plotting(Callback):\n    def __init__(self):\n        torchmetrics.utilities.plot.plt.figure\n"
    )
    words = ("supernet.channels=4", "supernet.cells=1", "+callbacks.mine._target_=mine.Plotting")
    assert {"mine", "matplotlib.pyplot", "torchvision"} <= loaded(tmp_path, *words)


def run_code(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


COMPILED = """
import sys
from omegaconf import OmegaConf
from nas_lightning.cli.lightning_import import import_lightning
import_lightning(OmegaConf.create({}))
import pytorch_lightning as pl
import torch
from pytorch_lightning.demos.boring_classes import BoringModel
from pytorch_lightning.utilities.compile import OptimizedModule, to_uncompiled
print("torch._dynamo" in sys.modules)

class Model(BoringModel):
    def training_step(self, batch, index):
        loss = super().training_step(batch, index)["loss"]
        self.log("loss", loss)
        return loss
    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.randn(4, 32))

model, options = Model(), dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
compiled = torch.compile(model, backend="eager")
print(isinstance(model, OptimizedModule), isinstance(compiled, OptimizedModule))
print(isinstance(compiled, torch._dynamo.OptimizedModule))
trainer = pl.Trainer(max_epochs=1, limit_val_batches=0, enable_model_summary=False, **options)
trainer.fit(compiled)
print(trainer.global_step, "loss" in trainer.callback_metrics, to_uncompiled(compiled) is model)
"""


def test_lightning_trains_a_compiled_module_after_all():
    """Its own checks know such a module, which is of a class that was not there when they were imported."""
    done = run_code(COMPILED)
    assert done.stdout.splitlines()[-4:] == ["False", "False True", "True", "4 True True"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "from torch._dynamo import OptimizedModule, graph_break as found",
        "import torch._dynamo.decorators; found = torch._dynamo.graph_break",
        "from torch._dynamo.decorators import graph_break as found",
        "from torch._dynamo import decorators; found = decorators.graph_break",
        "import torch._dynamo as compiler",
    ],
)
def test_what_else_is_asked_of_the_compiler_loads_all_of_it(tmp_path, line):
    """As another version of Lightning might."""
    (tmp_path / "other.py").write_text(f"{line}\n")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from nas_lightning.cli.deferred_compiler import import_without_compiler
import_without_compiler("other")
import other, torch._dynamo.decorators
compiler = sys.modules["torch._dynamo"]
found = vars(other).get("found") or other.compiler.graph_break
print(compiler is torch._dynamo, found is compiler.graph_break is compiler.decorators.graph_break)
"""
    done = run_code(code)
    assert done.stdout.split() == ["True", "True"], done.stderr


KEPT = """
import gc, sys
from nas_lightning.cli.kept_imports import kept_imports
with kept_imports():
    import pytorch_lightning
first = gc.get_freeze_count()
with kept_imports():
    later = [[] for _ in range(1000)]
print(first > 100_000, gc.get_freeze_count() <= first, gc.isenabled())
"""


def test_imports_are_kept_once_and_nothing_complains_at_the_end():
    done = run_code(KEPT)
    assert (done.stdout.split(), done.stderr, done.returncode) == (["True"] * 3, "", 0)
