"""DARTS' space: size, sampling, derivation, stems, edges with different operations, notation."""

import csv
import json
import os
import random
from collections import Counter
from itertools import combinations, product
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from scipy.stats import chisquare

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Edge, Genotype
from nas_lightning.spaces import DartsSpace, Group, NasBench201
from nas_lightning.spaces.darts import OPS
from nas_lightning.strategies.one_shot.regularizers import computed_sparsity, group_sparsity, path_depth
from tests.strategies.conftest import build_search, quiet_trainer
from tests.yamls import composed, options

FEW = ("none", "skip_connect", "max_pool_3x3", "avg_pool_3x3")


def every_cell(nodes, ops):
    """Brute force: of all sets of (op, source, target), those with two sources for every node."""
    edges = [(op, s, t) for t in range(2, 2 + nodes) for s in range(t) for op in ops if op != "none"]
    cells = set()
    for chosen in combinations(edges, 2 * nodes):
        sources = [[s for _, s, t in chosen if t == node] for node in range(2, 2 + nodes)]
        if all(len(s) == 2 and s[0] != s[1] for s in sources):
            cells.add(Cell(chosen, 2, range(2, 2 + nodes)))
    return cells


def test_the_published_size():
    space = DartsSpace()
    assert space.groups["normal"].shape == space.groups["reduce"].shape == (14, 8)
    assert space.groups["normal"].ops == OPS
    # Liu et al. 2019, section 3.2, count 10^9 cells: Π_k (k+1)k/2 × 7² over nodes k = 1..4
    cells = 1
    for k in range(1, 5):
        cells *= (k + 1) * k // 2 * 7**2
    assert cells == 1_037_664_180


def test_sampling_is_uniform_over_whole_genotypes(generator):
    space = DartsSpace(nodes=1, ops=FEW)
    cells = every_cell(1, FEW)
    assert len(cells) == 9
    pairs = [space.genotype_of({"normal": n, "reduce": r}) for n, r in product(cells, repeat=2)]
    counts = dict.fromkeys(pairs, 0)
    for _ in range(30 * len(pairs)):
        counts[space.sample(generator)] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_sampling_is_uniform_over_the_sources(generator):
    space = DartsSpace(nodes=2, ops=FEW[:3])
    counts = dict.fromkeys(every_cell(2, FEW[:3]), 0)
    assert len(counts) == 4 * 12  # node 2: 2²; node 3: 3 pairs of sources × 2²
    for _ in range(40 * len(counts)):
        genotype = space.sample(generator)
        counts[genotype["normal"]] += 1
        counts[genotype["reduce"]] += 1
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_neighbors_by_brute_force(generator):
    space = DartsSpace(nodes=2, ops=FEW)
    cells, genotype = every_cell(2, FEW), space.sample(generator)
    near = set()
    for kind in ("normal", "reduce"):
        edges = set(genotype[kind].edges)
        for other in cells:
            gone, new = edges - set(other.edges), set(other.edges) - edges
            if len(gone) == len(new) == 1:
                (op, source, target), (new_op, new_source, new_target) = *gone, *new
                assert target == new_target
                if (op == new_op) != (source == new_source):
                    near.add(space.genotype_of({**dict(genotype), kind: other}))
    assert set(space.neighbors(genotype)) == near


def test_derivation_keeps_the_two_strongest_edges_of_each_node(generator):
    """Section 2.4: the strength of an edge is that of its strongest operation other than none."""
    space = DartsSpace()
    group = space.groups["normal"]
    scores = {name: torch.rand(group.shape, generator=generator) for name in space.groups}
    scores["normal"][:, 0] = 10.0  # none is never chosen, however strong
    for name, cell in space.discretize(scores):
        for node in space.inner:
            strength = {
                source: max((scores[name][row, column].item(), op) for column, op in enumerate(OPS) if column)
                for row, (source, target) in enumerate(group.edges)
                if target == node
            }
            strongest = sorted(strength, key=lambda source: strength[source], reverse=True)[:2]
            assert {(e.op, e.source) for e in cell.into(node)} == {(strength[s][1], s) for s in strongest}


def test_ties_go_to_the_earlier_row_and_column():
    space = DartsSpace()
    for fill in (0.0, -1.0, 1.0):
        genotype = space.discretize({name: torch.full((14, 8), fill) for name in space.groups})
        for _, cell in genotype:
            assert {edge.op for edge in cell.edges} == {OPS[1]}
            assert [edge.source for edge in cell.edges] == [0, 1] * 4


def test_stems_and_reductions(generator):
    for stem, stride, sides in [
        ("cifar", 1, (32, 16, 8)),
        ("cifar", 2, (16, 8, 4)),
        ("imagenet", 1, (4, 2, 1)),
    ]:
        space = DartsSpace()
        size = {"channels": 4, "cells": 6, "stem": stem, "stem_stride": stride}
        network = space.network(space.sample(generator), in_channels=3, num_classes=5, **size)
        maps = list(network.backbone.cells_outputs(torch.randn(2, 3, 32, 32)))
        expected = [sides[0]] * 2 + [sides[1]] * 2 + [sides[2]] * 2  # reductions are cells 6/3 and 2·6/3
        assert [tuple(m.shape[2:]) for m in maps] == [(side, side) for side in expected]
        assert [m.shape[1] for m in maps] == [4 * width for width in (4, 4, 8, 8, 16, 16)]
        assert network.backbone.kinds == ["normal", "normal", "reduce", "normal", "reduce", "normal"]


def test_supernets_have_both_stems():
    space = DartsSpace(nodes=2)
    weights = {name: torch.rand(group.shape) for name, group in space.groups.items()}
    for stem in ("cifar", "imagenet"):
        supernet = space.supernet(in_channels=3, num_classes=5, channels=4, cells=3, stem=stem, partial=2)
        assert supernet(torch.randn(2, 3, 40, 33), weights).shape == (2, 5)


def test_impossible_options():
    for build, message in [
        (lambda: DartsSpace(nodes=0), "`nodes` must be at least 1"),
        (lambda: DartsSpace(ops=("none",)), "must be distinct, with at least one other than none"),
        (lambda: DartsSpace(ops=()), "must be distinct, with at least one other than none"),
        (lambda: DartsSpace(ops=("skip_connect",) * 2), "must be distinct"),
        (
            lambda: DartsSpace(ops=("sep_conv_3x4",)).supernet(in_channels=3, num_classes=5),
            "did you mean 'sep_conv_3x3'",
        ),
        (
            lambda: DartsSpace().supernet(in_channels=3, num_classes=5, stem="cifr"),
            "must be 'cifar' or 'imagenet', got 'cifr'",
        ),
    ]:
        with pytest.raises(InputError, match=message):
            build()


def test_a_cell_that_leaves_nodes_out_is_no_path_of_the_supernet(generator):
    """The supernet returns every inner node, so weights cannot say what such a cell computes."""
    space = DartsSpace(nodes=2)
    genotype = space.sample(generator)
    cell = genotype["normal"]
    short = Genotype("darts", {**dict(genotype), "normal": Cell(cell.edges, 2, [3])})
    with pytest.raises(InputError, match="'normal' must return all 2 inner nodes, got"):
        space.one_hot(short)


POOL, SKIP, SEP, DIL = "max_pool_3x3", "skip_connect", "sep_conv_3x3", "dil_conv_5x5"
OPS_OF_EDGES = (POOL, SKIP, SEP, DIL)
EDGE_OPS = {
    "normal": [[SKIP, SEP], [DIL, SKIP], [SKIP, SEP], [POOL, SKIP], [SEP, DIL]],
    "reduce": [[POOL, SKIP], [SKIP, DIL], [POOL, SKIP], [SEP, DIL], [SKIP, SEP]],
}
SIZE = {"in_channels": 1, "num_classes": 3, "channels": 4, "cells": 3, "stem_multiplier": 1}
PAPERS = ("darts", "drnas", "gdas", "pr_darts", "snas", "reinmax", "gaea", "fair_darts", "darts_minus")


@pytest.fixture
def space():
    return DartsSpace(nodes=2, ops=OPS_OF_EDGES, edge_ops=EDGE_OPS)


def edge_has(kind, edge):
    rows = [(0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]
    return edge.op in EDGE_OPS[kind][rows.index((edge.source, edge.target))]


def every_cell_of_edges(kind):
    """All cells by brute force: two edges a node from different nodes, each with one of its operations."""
    edges = [Edge(op, s, t) for t in (2, 3) for s in range(t) for op in OPS_OF_EDGES]
    edges = [edge for edge in edges if edge_has(kind, edge)]
    pairs = {t: [p for p in combinations(edges, 2) if p[0].source != p[1].source] for t in (2, 3)}
    into = {t: [p for p in pairs[t] if p[0].target == p[1].target == t] for t in (2, 3)}
    return {Cell([*two, *three], 2, (2, 3)) for two, three in product(into[2], into[3])}


def test_sampling_is_uniform_with_edge_ops(space):
    generator = torch.Generator().manual_seed(0)
    cells = every_cell_of_edges("normal")
    drawn = Counter(space.sample(generator)["normal"] for _ in range(40 * len(cells)))
    assert set(drawn) == cells
    assert max(drawn.values()) < 4 * min(drawn.values())


def test_steps_between_neighbors_lead_from_each_cell_to_every_other(space):
    generator = torch.Generator().manual_seed(1)
    start = space.sample(generator)
    seen, new = {start["normal"]}, [start]
    while new:
        found = [n for g in new for n in space.neighbors(g) if n["normal"] not in seen]
        new = list({n["normal"]: n for n in found}.values())
        seen |= {n["normal"] for n in new}
    assert seen == every_cell_of_edges("normal")


def test_neighbors_are_mutual_and_differ_in_one_edge(space):
    genotype = space.sample(torch.Generator().manual_seed(2))
    for other in space.neighbors(genotype):
        assert sum(len({*other[kind].edges} - {*genotype[kind].edges}) for kind in EDGE_OPS) == 1
        assert genotype in space.neighbors(other)


def test_one_hot_and_discretize_are_inverse_with_edge_ops(space):
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        genotype = space.sample(generator)
        assert space.discretize(space.one_hot(genotype)) == genotype


def test_its_supernet_is_that_of_all_operations_with_zeros_where_edges_have_others(space):
    torch.manual_seed(0)
    whole = DartsSpace(nodes=2, ops=OPS_OF_EDGES)
    ours, theirs = space.supernet(**SIZE), whole.supernet(**SIZE)
    theirs.load_state_dict({**theirs.state_dict(), **ours.state_dict()})
    weights = {name: torch.rand(group.shape) for name, group in space.groups.items()}
    spread = {name: group.by_name(weights[name]) for name, group in space.groups.items()}
    for name, group in space.groups.items():
        for row, names in enumerate(EDGE_OPS[name]):
            assert spread[name][row].count_nonzero() == 2
            assert [spread[name][row, group.ops.index(op)] for op in names] == weights[name][row].tolist()
    x = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(ours(x, weights), theirs(x, spread))


def test_searches_derive_candidates_of_each_edge():
    for name in PAPERS:
        words = [f"space.ops=[{','.join(OPS_OF_EDGES)}]", "space.nodes=2"]
        words += [f"+space.edge_ops.{kind}={rows}".replace("'", "") for kind, rows in EDGE_OPS.items()]
        strategy, data = build_search(name, "darts", *words)
        quiet_trainer(1).fit(strategy, data)
        (genotype,) = strategy.derive()
        assert all(edge_has(kind, edge) for kind, cell in genotype for edge in cell.edges)
        assert all(bool(torch.isfinite(value).all()) for value in strategy.state_dict().values())


GROUP = Group(((0, 2), (1, 2), (2, 3)), OPS_OF_EDGES, own=((SKIP, SEP), (DIL, SKIP), (POOL, SEP)))
P = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])


def test_regularizers_find_operations_on_each_edge():
    assert group_sparsity(P, GROUP)["nonskip"].item() == pytest.approx((0.2 + 0.3 + 0.5 + 0.6) / 4)
    sparsity = computed_sparsity(P, GROUP)
    assert sparsity["skip"].item() == pytest.approx((0.1 + 0.4) / 2)
    assert sparsity["pooling"].item() == pytest.approx(0.5)
    assert sparsity["other"].item() == pytest.approx((0.2 + 0.3 + 0.6) / 3)
    assert path_depth(P, GROUP).item() == pytest.approx(0.3 * 0.6)


def test_operations_that_do_not_fit_the_edges_are_refused():
    for change, message in [
        ({"edge_ops": {"normal": EDGE_OPS["normal"]}}, "`edge_ops` must have operations for normal, reduce"),
        ({"nodes": 3}, "There must be operations for 9 edges, got 5"),
        (
            {"edge_ops": {**EDGE_OPS, "reduce": [*EDGE_OPS["reduce"][:4], [SEP]]}},
            "Every edge must have equally many operations, got",
        ),
        (
            {"edge_ops": {**EDGE_OPS, "reduce": [*EDGE_OPS["reduce"][:4], [SEP, "avg_pool_3x3"]]}},
            "The operation must be one of the space",
        ),
        (
            {"edge_ops": {**EDGE_OPS, "reduce": [*EDGE_OPS["reduce"][:4], [SEP, SEP]]}},
            "`ops` must be distinct",
        ),
    ]:
        with pytest.raises(InputError) as error:
            DartsSpace(**{"nodes": 2, "ops": OPS_OF_EDGES, "edge_ops": EDGE_OPS, **change})
        assert str(error.value).startswith(message)


def test_an_operation_that_another_edge_has_is_no_architecture(space):
    cells = dict(space.sample(torch.Generator().manual_seed(4)))
    edges = [edge for edge in cells["normal"].edges if edge.target == 3]
    cells["normal"] = Cell([Edge(POOL, 0, 2), Edge(SKIP, 1, 2), *edges], 2, (2, 3))
    with pytest.raises(InputError, match="The operation must be one of the space"):
        space.one_hot(Genotype(space.name, cells, space.settings))


def test_s1_has_two_operations_on_every_edge():
    assert "robust_darts_s1" in options("experiment")
    config = composed("search", "experiment=robust_darts_s1").space
    found = DartsSpace(ops=config.ops, edge_ops=config.edge_ops)
    assert {name: group.shape for name, group in found.groups.items()} == {
        "normal": (14, 2),
        "reduce": (14, 2),
    }
    assert Counter(op for ops in found.groups["normal"].own for op in ops)[SKIP] == 12


FOLDER = Path(__file__).parents[2] / "conf" / "genotype"
NAMES = sorted(file.stem for file in FOLDER.glob("*.yaml") if file.stem != "file")
PUBLISHED_IN = {"darts": DartsSpace(), "nasbench201": NasBench201()}


def load(name):
    data = OmegaConf.to_container(OmegaConf.load(FOLDER / f"{name}.yaml"))
    return data, PUBLISHED_IN[data["space"]]


def dead_nodes(cell):
    """Inner nodes from which no path leads to the output; some adapted cells have them."""
    alive = set(cell.output)
    for edge in reversed(cell.edges):  # edges are in the order of their targets
        if edge.target in alive:
            alive.add(edge.source)
    return set(range(cell.inputs, cell.nodes)) - alive


def test_published_cells_of_both_spaces():
    assert {load(name)[1].name for name in NAMES} == set(PUBLISHED_IN)
    assert len(NAMES) >= 13


def test_each_has_a_description_and_trains():
    for name in NAMES:
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


def test_darts_cells_equal_published_ones(shared_data):
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


SPACES = {"darts": DartsSpace(), "nasbench201": NasBench201()}
DARTS = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('skip_connect', 1), ('dil_conv_5x5', 2), ('max_pool_3x3', 0)],"
    " normal_concat=range(2, 4), reduce=[('avg_pool_3x3', 0), ('none', 1), ('sep_conv_5x5', 0),"
    " ('skip_connect', 2)], reduce_concat=[2, 3])"
)
ARCH = "|nor_conv_3x3~0|+|nor_conv_1x1~0|none~1|+|skip_connect~0|avg_pool_3x3~1|nor_conv_3x3~2|"
JSON = {
    "darts": json.dumps(SPACES["darts"].parse(DARTS).to_dict()),
    "nasbench201": json.dumps(SPACES["nasbench201"].parse(ARCH).to_dict()),
}
TEXTS = {"darts": DARTS, "nasbench201": ARCH}

INJECTIONS = [
    "__import__('os').system('true')",
    "Genotype(normal=__import__('os').system('true'))",
    "Genotype(normal=[(__import__('os').system('true'), 0)] * 2, reduce=[])",
    "Genotype(**__import__('os').environ)",
    "Genotype(*[__import__('os').system('true')])",
    "Genotype(normal=[('skip_connect', (lambda: __import__('os').system('true'))())] * 2)",
    "Genotype(normal=list(map(__import__('os').system, ['true'])))",
    "Genotype(normal=range(__import__('os').system('true')))",
    "Genotype(normal=[x for x in [__import__('os').system('true')]])",
    f"{DARTS}; __import__('os').system('true')",
    f"{DARTS}\n__import__('os').system('true')",
    f"({DARTS}, __import__('os').system('true'))",
    f"__import__('os').system('true') or {DARTS}",
    f"({DARTS}).__class__.__subclasses__()",
    "import os; os.system('true')",
    "exec('import os')",
    'f\'{__import__("os").system("true")}\'',
    "|__import__('os').system('true')~0|+|none~0|none~1|+|none~0|none~1|none~2|",
    "{\"arch\": \"__import__('os').system('true')\"}",
    "!!python/object/apply:os.system ['true']",
]
GARBAGE = [
    "",
    " \n\t",
    "\0",
    "Genotype",
    "Genotype()",
    "Genotype(normal=[], reduce=[])",
    "Genotype(normal=[('skip_connect', 0)], reduce=[('skip_connect', 0)])",
    "Genotype(normal=range(10**12))",
    "Genotype(normal=range(1000000000000))",
    f"Genotype(normal=range({10**40}), reduce=range(-{10**40}, {10**40}))",
    "Genotype(normal=range(0, 5, 0))",
    "Genotype(normal=list())",
    f"Genotype(normal=[('skip_connect', {'9' * 5000})] * 2)",
    f"Genotype(normal=[('skip_connect', 0x{'f' * 5000}), ('skip_connect', 0)], reduce=[])",
    "Genotype(normal=" + "[" * 5000 + "]" * 5000 + ")",
    "Genotype(normal=" + "-" * 5000 + "1)",
    "Genotype" + "()" * 5000,
    "1" + "+1" * 20_000,
    "{" * 5000,
    '{"cells":' * 50_000,
    '{"cells": ' + "9" * 5000 + "}",
    '{"cells": {}}',
    '{"cells": {"cell": null}}',
    '{"cells": []}',
    "[]",
    "null",
    '"text"',
    "{}",
    "{'normal': 1}",
    '{"arch": null}',
    '{"arch": {"arch": []}}',
    "|none~0|+|none~0|none~1|",
    "|none~0|+|none~0|none~1|+|none~0|none~1|none~3|",
    "|none~0|+|none~0|none~1|+|none~0|none~1|none~٢|",
    "|none~0|+|none~0|none~1|+|none~0|none~1|none~" + "9" * 5000 + "|",
    "|" * 10_000 + "~" * 10_000,
    "\ud800\udfff",
    "Genotype(normal=[('\\ud800', 0), ('a\\d', 0)], reduce=[])",
    "Génötype(ñormal=[])",
    "\u202eGenotype(normal=[])",
    "💥" * 300,
]
NOT_TEXT = [None, 5, 1.5, True, [], [1], (), object(), b"Genotype()", {1, 2}, {}, {1: 2}, {None: []}]
VALUES = [
    None,
    -1,
    2**70,
    10**5000,
    0.5,
    float("nan"),
    True,
    "",
    "\ud800",
    [],
    [[[]]],
    {},
    {"a": 1},
    [None, None],
]


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch):
    def ran(*_):
        pytest.fail("the text was evaluated")

    monkeypatch.setattr(os, "system", ran)


def damaged(text, count, seed):
    """Seeded damage: the text cut, a piece removed, doubled or replaced by characters of all kinds."""
    random_ = random.Random(seed)
    strange = "()[]{}'\",:|~+0129 \n\0\\é💥\u2028\ud800"
    for _ in range(count):
        a, b = sorted(random_.choices(range(len(text) + 1), k=2))
        filling = "".join(random_.choices(strange, k=random_.randint(1, 4)))
        yield random_.choice(
            [text[:a], text[b:], text[:a] + text[b:], text[:b] + text[a:], text[:a] + filling + text[a + 1 :]]
        )


def places(value, path=()):
    """The paths of everything inside nested containers."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from places(item, (*path, key))


def spoiled(text):
    """The mapping in the JSON text, with each of its values in turn replaced by one of another kind."""
    for path in list(places(json.loads(text))):
        for value in VALUES:
            data = json.loads(text)
            target = data
            for key in path[:-1]:
                target = target[key]
            target[path[-1]] = value
            yield data


def check(space, cases, refusal):
    """Count the refused; what is accepted must be a genotype of the space that writes and reads as itself."""
    refused = 0
    for case in cases:
        if refusal(space.parse, case) is not None:
            refused += 1
        else:
            genotype = space.parse(case)
            space.check(genotype)
            assert space.parse(space.notation(genotype)) == genotype, case
    return refused


def test_code_is_refused_and_never_runs(refusal):
    for space in SPACES.values():
        for text in INJECTIONS:
            assert refusal(space.parse, text)


def test_garbage_is_refused(refusal):
    for space in SPACES.values():
        cases = [*GARBAGE, *NOT_TEXT]
        assert check(space, cases, refusal) == len(cases)


def test_damaged_texts(refusal):
    for space in SPACES.values():
        for text in (TEXTS[space.name], JSON[space.name]):
            refused = check(space, damaged(text, 400, seed=1), refusal)
            assert refused >= 250


def test_mappings_with_values_of_other_kinds(refusal):
    for space in SPACES.values():
        cases = list(spoiled(JSON[space.name]))
        allowed = [
            data for data in cases if not isinstance(data["space"], str) or data["space"] != space.name
        ]
        assert len(cases) > 300
        assert check(space, cases, refusal) >= len(cases) - 2
        assert check(space, allowed, refusal) == len(allowed) > 0


def test_darts_mappings_with_values_of_other_kinds(refusal):
    pairs = [["skip_connect", 0], ["sep_conv_3x3", 1]]
    good = json.dumps({"normal": pairs, "normal_concat": [2], "reduce": pairs, "reduce_concat": [2]})
    cases = list(spoiled(good))
    assert refusal(SPACES["darts"].parse, json.loads(good)) is None
    assert check(SPACES["darts"], cases, refusal) == len(cases) > 200


def test_the_other_spaces_notation_is_refused(refusal):
    for space in SPACES.values():
        (other,) = set(SPACES) - {space.name}
        assert refusal(space.parse, TEXTS[other])
        assert refusal(space.parse, JSON[other])


def test_ways_of_writing_the_same_darts_cell():
    for text in [
        DARTS,
        f"  DARTS_V9 = {DARTS}\n",
        DARTS.replace("normal=", "")
        .replace("normal_concat=", "")
        .replace("reduce=", "")
        .replace("reduce_concat=", ""),
        DARTS.replace("range(2, 4)", "list(range(2, 4))"),
        DARTS.replace(" normal_concat=range(2, 4),", ""),
        DARTS.replace("(", "[")
        .replace(")", "]")
        .replace("Genotype[", "Genotype(")[:-1]
        .replace("range[2, 4]", "[2, 3]")
        + ")",
    ]:
        assert SPACES["darts"].parse(text) == SPACES["darts"].parse(DARTS)


def test_darts_nodes_have_two_edges():
    for edges in [1, 3]:
        data = json.loads(JSON["darts"])
        cell = data["cells"]["normal"]
        cell["edges"] = cell["edges"][1:] if edges == 1 else [*cell["edges"], ["skip_connect", 1, 2]]
        with pytest.raises(InputError, match=f"'normal' must have two edges into node 2, got {edges}"):
            SPACES["darts"].parse(data)


def test_messages_help():
    with pytest.raises(InputError, match=r"'normal' \(did you mean 'sep_conv_3x3'\?\), got 'sep_conv_3x4'"):
        SPACES["darts"].parse(DARTS.replace("sep_conv_3x3", "sep_conv_3x4"))
    with pytest.raises(InputError, match="did you mean 'nor_conv_3x3'"):
        SPACES["nasbench201"].parse(ARCH.replace("nor_conv_3x3", "nor_conv_3x4"))
    with pytest.raises(InputError, match="from an earlier node"):
        SPACES["darts"].parse(DARTS.replace("('dil_conv_5x5', 2)", "('dil_conv_5x5', 3)"))
