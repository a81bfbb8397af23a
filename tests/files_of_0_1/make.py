"""How these files were made: by version 0.1, with its code on the path; `python make.py` in its repository.

Each space has a genotype, a model file and what the network made of `images`; beside them a search that was
stopped in its second epoch with what the same search came to where nothing stopped it, a training run and an
ensemble. Pictures and pages are left out.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from hydra.utils import instantiate
from nas_lightning.model_file import load, save
from omegaconf import OmegaConf
from safetensors.torch import save_file

from nas_lightning.genotype import write_genotypes

HERE = Path(__file__).parent
CLASSES = ("cat", "dog", "owl")
SMALL = {"channels": 4, "cells": 1, "width": 4, "side": 2, "stem_multiplier": 1, "auxiliary": False}
SETTINGS = {
    "darts": {},
    "darts_two_nodes": {"nodes": 2},
    "darts_nasi": {},
    "nasbench101": {},
    "nasbench1shot1_s1": {},
    "nasbench1shot1_s2": {},
    "nasbench1shot1_s3": {},
    "nasbench201": {},
    "mlp": {},
    "mlp_four_layers": {"layers": 4},
    "two_layer": {},
}
IMAGES = ("dataset=digits", "dataset.subset=200", "dataset.batch_size=16")
SEARCH = (
    *("strategy=darts", "space=nasbench201", "supernet.channels=2", "supernet.cells=1"),
    *("network.channels=2", "network.cells=1", "trainer.max_epochs=3", *IMAGES),
)
TRAIN = ("genotype=file", "network.channels=2", "network.cells=1", "trainer.max_epochs=2", *IMAGES)
LEFT_OUT = ("figures", "report.html", "*.log")


def images(shape: tuple[int, ...]) -> torch.Tensor:
    """The same numbers everywhere and always."""
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(count, dtype=torch.float64) * 0.7).float().view(shape)


def make_space_files(name: str, settings: dict) -> None:
    option = name if (Path("conf/space") / f"{name}.yaml").is_file() else name.split("_")[0]
    config = OmegaConf.load(f"conf/space/{option}.yaml")
    settings = {key: value for key, value in config.space.items() if key != "_target_"} | settings
    settings = json.loads(json.dumps(settings, default=list))  # plain lists
    space = instantiate(config.space, **settings)
    sizes = {key: SMALL.get(key, value) for key, value in config.network.items()}
    genotype = space.sample(torch.Generator().manual_seed(1))
    torch.manual_seed(2)
    network = space.network(genotype, in_channels=1, num_classes=3, **sizes).train()
    network(images((8, 1, 8, 8)))  # its batch norms have seen something
    folder = HERE / "spaces" / name
    folder.mkdir(parents=True)
    write_genotypes(folder / "genotype.json", [genotype], space=space.name)
    known = {"image": (1, 8, 8), "classes": CLASSES, "mean": (0.1,), "std": (0.9,)}
    save(network, folder / "model.safetensors", space, genotype, sizes, settings=settings, **known)
    with torch.no_grad():
        logits = load(folder)(images((2, 1, 8, 8)))
    expected = {"logits": logits.tolist(), "notation": space.notation(genotype), "text": str(genotype)}
    (folder / "expected.json").write_text(json.dumps({**expected, "settings": settings}, indent=1) + "\n")


def run(script: str, *words: str) -> None:
    subprocess.run([sys.executable, f"{script}.py", *words], check=True)


def stop_in_the_second_epoch(folder: Path, *words: str) -> None:
    job = subprocess.Popen([sys.executable, "search.py", *words, f"run={folder}"])
    while not (folder / "checkpoints" / "last.ckpt").is_file():
        time.sleep(0.005)
    job.send_signal(signal.SIGTERM)
    assert job.wait() == 143


def move_in(made: Path, name: str) -> None:
    for pattern in LEFT_OUT:
        for path in made.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.move(made, HERE / name)


def main() -> None:
    for name, settings in SETTINGS.items():
        make_space_files(name, settings)
    work = Path("made")
    run("search", *SEARCH, "run=made/whole")
    stop_in_the_second_epoch(work / "search", *SEARCH)
    run("train", *TRAIN, "genotype.path=made/whole", "run=made/train")
    words = ("ensemble=deep", "ensemble.count=2", "genotype.path=made/whole", "run=made/deep")
    run("train", *TRAIN, *words)
    with torch.no_grad():
        from nas_lightning.models import Ensemble

        logits = {
            "train": load(work / "train")(images((2, 1, 8, 8))),
            "ensemble": Ensemble.load(work / "deep")(images((2, 1, 8, 8))),
        }
    shutil.move(work / "deep" / "ensemble", HERE / "ensemble")
    save_file(logits, HERE / "logits.safetensors")
    (HERE / "search_end").mkdir()
    for file in ("genotype.json", "summary.json"):
        shutil.copy(work / "whole" / file, HERE / "search_end")
    move_in(work / "search", "search")
    move_in(work / "train", "train")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
