"""A page of each kind, of runs written by hand: `PAGES[kind](folder)` is its file."""

import csv
import json

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from omegaconf import OmegaConf
from PIL import Image

from nas_lightning.cli import SweepTable
from nas_lightning.genotype import write_genotypes
from nas_lightning.jobs.predict import write_outcome
from nas_lightning.models import Predictions
from nas_lightning.models.prediction import TEST
from nas_lightning.report.comparison import write_side_by_side
from nas_lightning.report.page import write_report
from nas_lightning.runs.facts import Findings
from nas_lightning.utils.tables import Table
from tests.report.searches import GENOTYPES, SPACE, write_search

EVIL = "</pre></script><script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"
LONG = "an_operation_whose_name_has_sixty_letters_and_no_space_in_it"


def search(folder, name=LONG):
    """A finished search, one of whose operations and settings has that name."""
    facts = dict.fromkeys(("strategy", "space", "dataset"), name)
    facts |= {"versions": {name: name}, "metrics": {name: 1.0, "x_loss": 2.0}, "notation": [name], "seed": 0}
    write_genotypes(write_search(folder) / "genotype.json", GENOTYPES[:1], **facts)
    rename(folder, name)
    return write_report(folder, 12.5, {name: f"python train.py genotype=file {20 * name}"})


def rename(folder, name):
    """Have an operation, a group of decisions and a setting of that name."""
    (folder / ".hydra" / "config.yaml").write_text(json.dumps({"strategy": {name: name}}))
    history = folder / "history.jsonl"
    entries = [json.loads(line) for line in history.read_text().splitlines()]
    for entry in entries:
        entry["groups"]["cell"]["ops"] = ["none", name]
        entry["groups"][name] = entry["groups"]["cell"]
    history.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def search_without_training(folder, name="x"):
    """A pool with its scores."""
    write_search(folder)
    rows = [f"{name} {number},{number}e{number},{40 - number}" for number in range(1, 40)]
    chosen = f"{SPACE.notation(GENOTYPES[0])},5e9,17"
    (folder / "pool.csv").write_text("\n".join(["arch,synflow,jacov", *rows, chosen, ""]))
    return write_report(folder)


def front(folder, name="latency_ms"):
    """A search for several things, one of them of that name, with the front that it found."""
    run = write_search(folder)
    for file, columns in (("candidates.csv", ["genotype"]), ("front.csv", ["index", "knee", "genotype"])):
        with (run / file).open("w", newline="") as out:
            rows = csv.writer(out)
            rows.writerow([*columns, "params", name])
            for index, mark in enumerate(("", "knee", "")):
                around = {"index": index, "knee": mark, "genotype": name}
                rows.writerow([*(around[column] for column in columns), 10 ** (index + 3), 9.5 - index])
    return write_report(run)


def killed(folder, name="max_pool_3x3"):
    """A search that did not come to its end."""
    rename(write_search(folder), name)
    (folder / "genotype.json").unlink()
    return write_report(folder)


def predictions_of(folder, classes):
    """Forty images and two that could not be read, as a training's end writes them."""
    draw = torch.Generator().manual_seed(0)
    outputs = torch.rand(42, len(classes), generator=draw).softmax(dim=1)
    outputs[[3, 7]] = torch.nan
    truth = torch.randint(len(classes), (42,), generator=draw)
    names = tuple(f"{classes[place]}/{row} {classes[0]}.png" for row, place in enumerate(truth.tolist()))
    errors = dict.fromkeys((3, 7), "The file is damaged or not an image")
    found = Predictions(names, classes, outputs, truth, errors=errors)
    gray = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 3)
    return write_outcome(
        folder, f"Test images of {classes[0]}", found, lambda row: gray, {1: 1.5, 64: 30.0}
    ).page


def predictions(folder, name="a class"):
    return predictions_of(folder, (name, LONG, *"cdefgh"))


def training(folder, name="a class"):
    """A finished training of a classifier, with what it says of its test images."""
    write_search(folder)
    (folder / "history.jsonl").unlink()
    metrics = {"test_accuracy": 0.5, "test_loss": 1.5, "valid_accuracy": 0.6}
    facts = {"kind": "training", "space": "nasbench201", "dataset": name, "metrics": metrics, "params": 12345}
    write_genotypes(folder / "genotype.json", GENOTYPES[:1], **facts, notation=[SPACE.notation(GENOTYPES[0])])
    predictions(folder / TEST, name)
    return write_report(folder)


def findings(name="How the members differ"):
    """Tables and figures as studies and ensembles have them."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    figure.subplots().loglog([1, 2], [1e-3, 1e3], label=name)  # whose ticks have exponents
    wide = Table(
        "t", name, ["", *(f"column {n}" for n in range(19))], [[0.5] * 20, [name] * 20], f"Of {name}."
    )
    return Findings([wide], {"agreement": figure})


def ensemble(folder, name="b"):
    """Two members, one with a notation that has no end."""
    write_search(folder)
    write_genotypes(folder / "genotype.json", GENOTYPES, strategy="Nesbs", seed=0, notation=["a" * 300, name])
    return write_report(folder, findings=findings(name))


def study(folder, name="sizes"):
    """A finished study, from its files."""
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text(json.dumps({"study": {"of": name}}))
    hydra = {"job": {"config_name": "analyze"}, "runtime": {"choices": {"study": name}}}
    (folder / ".hydra" / "hydra.yaml").write_text(json.dumps({"hydra": hydra}))
    findings(name).write(folder)
    facts = {"study": name, "seconds": 61.0, "overrides": [], "metrics": {"spread": 0.25}}
    (folder / "summary.json").write_text(json.dumps(facts))
    return write_report(folder)


def compared(folder, name="long"):
    """Two searches that differ in a setting."""
    runs = [write_search(folder / "one"), write_search(folder / "another")]
    (runs[1] / ".hydra" / "config.yaml").write_text(json.dumps({"strategy": {"lr": name * 50}}))
    return write_side_by_side(runs, folder / "comparison.html")


def sweep(folder, name="out of memory"):
    """Three trainings, and one that failed."""
    for number, accuracy in enumerate((0.5, 0.6, 0.55)):
        run = write_search(folder / str(number))
        facts = {"kind": "training", "dataset": name, "metrics": {"test_accuracy": accuracy}, "seconds": 60.0}
        facts |= {
            "params": 1000 * (number + 1),
            "macs": 10**6 * (number + 1),
            "overrides": [f"seed={number}"],
        }
        write_genotypes(run / "genotype.json", GENOTYPES[number % 2 :][:1], **facts)
        (run / "summary.json").write_text(json.dumps(facts))
    (folder / "3").mkdir()
    (folder / "3" / "summary.json").write_text(json.dumps({"error": name, "overrides": [f"seed=3 {name}"]}))
    config = OmegaConf.create({"objective": "test_accuracy", "hydra": {"sweep": {"dir": str(folder)}}})
    with pytest.raises(SystemExit, match="1"):  # one has failed
        SweepTable().on_multirun_end(config)
    return folder / "report.html"


PAGES = {
    page.__name__: page
    for page in (
        *(
            search,
            search_without_training,
            front,
            killed,
            training,
            ensemble,
            study,
            sweep,
            compared,
            predictions,
        ),
    )
}
