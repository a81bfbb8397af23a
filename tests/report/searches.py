"""The folder of a search of three epochs, written by hand."""

import json

import torch

from nas_lightning.genotype import write_genotypes
from nas_lightning.runs.metrics_csv import MetricsCSV
from nas_lightning.spaces import NasBench201

SPACE = NasBench201()
DRAW = torch.Generator().manual_seed(0)
GENOTYPES = [SPACE.sample(DRAW) for _ in range(2)]


def write_search(folder):
    """A finished search's folder with everything in it."""
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text("seed: 3\nstrategy:\n  lr: 0.025\n")
    (folder / ".hydra" / "overrides.yaml").write_text("- dataset=fake\n- strategy=darts\n- seed=3\n")
    choices = {"strategy": "darts", "space": "nasbench201", "dataset": "fake"}
    (folder / ".hydra" / "hydra.yaml").write_text(json.dumps({"hydra": {"runtime": {"choices": choices}}}))
    facts = {
        "strategy": "Darts",
        "space": "nasbench201",
        "dataset": "fake",
        "seed": 3,
        "params": 1234567,
        "macs": 7654321,
        "versions": {"torch": "9.9"},
        "metrics": {"valid_accuracy": 0.625, "train_loss": 1.25, "tau": 0.1},
        "notation": [SPACE.notation(GENOTYPES[0])],
    }
    write_genotypes(folder / "genotype.json", GENOTYPES[:1], **facts)
    logger = MetricsCSV(folder)
    for epoch in range(3):
        logger.log_metrics(
            {"epoch": epoch, "train_loss": 2.0 - epoch / 2, "valid_accuracy": epoch / 4}, epoch
        )
    logger.finalize("success")
    scores = {
        "edges": [[0, 1], [1, 2]],
        "ops": ["none", "skip_connect"],
        "scores": [[0.25, 0.75], [0.5, 0.5]],
    }
    entries = [
        {"epoch": epoch, "genotypes": [GENOTYPES[epoch % 2].to_dict()], "groups": {"cell": scores}}
        for epoch in range(3)
    ]
    (folder / "history.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return folder
