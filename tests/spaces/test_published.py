"""The cells in conf/genotype: each parses, is the published one, and can be trained."""

import csv
import json
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from nas_lightning.spaces import DartsSpace, NasBench201

FOLDER = Path(__file__).parents[2] / "conf" / "genotype"
NAMES = sorted(file.stem for file in FOLDER.glob("*.yaml") if file.stem != "file")
SPACES = {"darts": DartsSpace(), "nasbench201": NasBench201()}


def load(name):
    data = OmegaConf.to_container(OmegaConf.load(FOLDER / f"{name}.yaml"))
    return data, SPACES[data["space"]]


def dead_nodes(cell):
    """Inner nodes from which no path leads to the output; some adapted cells have them."""
    alive = set(cell.output)
    for edge in reversed(cell.edges):  # edges are in the order of their targets
        if edge.target in alive:
            alive.add(edge.source)
    return set(range(cell.inputs, cell.nodes)) - alive


def test_there_are_cells_of_both_spaces():
    assert {load(name)[1].name for name in NAMES} == set(SPACES)
    assert len(NAMES) >= 13


@pytest.mark.parametrize("name", NAMES)
def test_each_has_a_description_and_trains(name):
    data, space = load(name)
    first = (FOLDER / f"{name}.yaml").read_text().splitlines()[0]
    assert first.startswith("# ")
    assert "arXiv:" in first
    assert data["source"]
    genotype = space.parse(data)
    assert space.parse(space.notation(genotype)) == genotype
    network = space.network(genotype, in_channels=3, num_classes=5, channels=4, cells=3, auxiliary=False)
    network(torch.randn(2, 3, 9, 9)).sum().backward()
    idle = [name for name, p in network.named_parameters() if p.grad is None]
    dead = {node for _, cell in genotype for node in dead_nodes(cell)}
    assert all(int(name.split(".ops.")[1].split("_")[1]) in dead for name in idle)


def test_darts_cells_are_the_published_ones(shared_data):
    published = json.loads((shared_data / "genotypes.json").read_text())
    seen = set()
    for key, cell in published.items():
        name = {"PRDARTS": "pr_darts"}.get(key, key.lower())
        data, space = load(name)
        assert space.parse(data) == space.parse(cell)
        assert cell["source"] in data["source"]
        seen.add(name)
    made_here = {"darts_adapt"}  # from darts_v2, as tests/studies/theory/test_variants.py says
    assert seen | made_here == {name for name in NAMES if load(name)[1].name == "darts"}


def test_the_best_cell_is_the_tables_best(shared_data):
    with (shared_data / "nasbench201" / "test_accuracy.csv").open() as file:
        best = max(csv.DictReader(file), key=lambda row: float(row["cifar10"]))
    assert load("nasbench201_best")[0]["arch"] == best["arch"]
