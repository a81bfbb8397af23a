"""Genotypes as values, and their files."""

import dataclasses
import itertools
import json
import pickle
import random

import pytest

from nas_lightning.errors import InputError
from nas_lightning.genotype import MOST_NODES, Cell, Edge, Genotype, read_genotypes, write_genotypes

EDGES = [("sep_conv_3x3", 0, 2), ("skip_connect", 1, 2), ("max_pool_3x3", 2, 3), ("skip_connect", 0, 3)]


def cell(**changes):
    return Cell(**{"edges": EDGES, "inputs": 2, "output": [2, 3], **changes})


def genotype():
    return Genotype("darts", {"reduce": cell(output=[3]), "normal": cell()})


def test_order_of_edges_and_cells_does_not_matter():
    cells = [cell(edges=order) for order in itertools.permutations(EDGES)]
    assert len(set(cells)) == 1
    assert [tuple(edge) for edge in cells[0].edges] == [EDGES[0], EDGES[1], EDGES[3], EDGES[2]]
    swapped = Genotype("darts", dict(reversed(list(genotype()))))
    assert swapped == genotype()
    assert hash(swapped) == hash(genotype())


def test_any_difference_counts():
    for changes in [
        {"edges": [("sep_conv_5x5", 0, 2), *EDGES[1:]]},
        {"output": [3]},
        {"output": [3, 2]},
        {"inputs": 1},
    ]:
        if changes == {"inputs": 1}:  # node 1 is then an inner node and needs an edge
            changes["edges"] = [*EDGES, ("none", 0, 1)]
            assert cell(**changes) != cell(edges=EDGES)
        else:
            assert cell(**changes) != cell()
        assert Genotype("darts", {"normal": cell()}) != Genotype("mine", {"normal": cell()})


def test_an_operation_may_stand_twice_between_two_nodes():
    twice = cell(edges=[*EDGES, EDGES[0]])
    assert len(twice.into(2)) == 3
    assert twice != cell()


def test_values_cannot_be_changed():
    value = genotype()
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.space = "other"
    with pytest.raises(dataclasses.FrozenInstanceError):
        value["normal"].inputs = 3
    with pytest.raises(AttributeError):
        value["normal"].edges[0].op = "none"
    data = value.to_dict()
    data["cells"]["normal"]["edges"].clear()
    assert value == genotype()


def test_properties_of_a_cell():
    assert cell().nodes == 4
    assert cell().into(2) == (Edge("sep_conv_3x3", 0, 2), Edge("skip_connect", 1, 2))
    assert cell().into(3) == (Edge("skip_connect", 0, 3), Edge("max_pool_3x3", 2, 3))
    assert cell().into(0) == ()
    assert genotype().ops == (*(edge.op for edge in cell().edges),) * 2


def test_inputs_are_nodes_whether_or_not_the_output_comes_from_them():
    for inputs in [1, 2, 3, 5]:
        for node in range(inputs):
            assert Cell(edges=[], inputs=inputs, output=[node]).nodes == inputs
            inner = Cell(edges=[("none", node, inputs)], inputs=inputs, output=[node])
            assert inner.nodes == inputs + 1
        far = Cell(edges=[("none", 0, 300), ("none", 1, 300)], inputs=300, output=[300])
        assert far.into(int("300")) == far.edges
        assert Cell(edges=[], inputs=300, output=range(300)).nodes == 300


def test_impossible_cells():
    for changes, expected in [
        ({"edges": [("skip_connect", 2, 2)]}, "from an earlier node"),
        ({"edges": [("skip_connect", 3, 2)]}, "from an earlier node"),
        ({"edges": [("skip_connect", 0, 1)]}, "from an earlier node"),
        ({"edges": [("skip_connect", -1, 2)]}, "an edge's source"),
        ({"edges": [("skip_connect", 0.0, 2)]}, "an edge's source"),
        ({"edges": [("skip_connect", True, 2)]}, "an edge's source"),
        ({"edges": [(3, 0, 2)]}, "[operation, source, target]"),
        ({"edges": [("skip_connect", 0)]}, "[operation, source, target]"),
        ({"edges": [("skip_connect", 0, 2, 3)]}, "[operation, source, target]"),
        ({"edges": ["abc"]}, "[operation, source, target]"),
        ({"inputs": 0}, "at least one input"),
        ({"inputs": "2"}, "the number of input nodes"),
        ({"inputs": MOST_NODES}, "the number of input nodes"),
        ({"inputs": MOST_NODES + 1}, "the number of input nodes"),
        ({"output": []}, "Output nodes must be distinct"),
        ({"output": [2, 2]}, "Output nodes must be distinct"),
        ({"output": [4]}, "Node 4 is used"),
        ({"edges": [("skip_connect", 2, 3)], "output": [3]}, "Node 2 is used"),
    ]:
        with pytest.raises(InputError) as caught:
            cell(**changes)
        assert expected in str(caught.value)


def test_json_round_trip_of_a_run(tmp_path):
    found = [genotype(), Genotype("other", {"cell": cell(output=[3])})]
    path = write_genotypes(tmp_path / "run" / "genotype.json", found, strategy="random", scores=[1.0, 0.5])
    assert read_genotypes(path) == found
    assert read_genotypes(str(path.parent)) == found
    content = json.loads(path.read_text())
    assert content["strategy"] == "random"
    assert path.read_text() == json.dumps(content, indent=2) + "\n"
    (tmp_path / "bare.json").write_text(json.dumps(genotype().to_dict()))
    assert read_genotypes(tmp_path / "bare.json") == [genotype()]


def test_settings_and_choices_tell_architectures_apart():
    plain, settings = genotype(), {"nodes": 2, "ops": ["skip_connect", "my.Op"]}
    cells = dict(plain)
    set_ = Genotype("darts", cells, settings)
    chosen = Genotype("darts", cells, settings, {"depth": 3, "widths": [16, 32]})
    assert len({plain, set_, chosen, Genotype("darts", cells, dict(reversed(settings.items())))}) == 3
    assert "settings" not in plain.to_dict()
    assert set_.to_dict()["settings"] == settings
    assert chosen.to_dict()["choices"] == {"depth": 3, "widths": [16, 32]}
    for one in (plain, set_, chosen):
        assert Genotype.from_dict(json.loads(json.dumps(one.to_dict()))) == one
        assert pickle.loads(pickle.dumps(one)) == one
    assert str(chosen).endswith("depth=3\nwidths=[16, 32]")
    assert str(set_) == str(plain)


def test_a_cell_has_three_parts_and_may_have_notes():
    data = genotype().to_dict()
    data["cells"]["normal"]["note"] = "the best of three"
    assert Genotype.from_dict(data) == genotype()
    for name in ("edges", "inputs", "output"):
        less = genotype().to_dict()
        del less["cells"]["normal"][name]
        with pytest.raises(InputError, match="genotype must"):
            Genotype.from_dict(less)


def test_choices_alone_are_an_architecture():
    one = Genotype("a supermodel", {}, choices={"depth": 3})
    assert Genotype.from_dict(one.to_dict()) == one
    with pytest.raises(InputError, match="at least one cell or choice"):
        Genotype("a supermodel", {})


def nested(depth: int) -> list:
    values: list = []
    for _ in range(depth):
        values = [values]
    return values


def test_settings_must_be_json():
    for values in [[1], "text", {"nodes": object()}, {"nodes": nested(5000)}]:
        with pytest.raises(InputError):
            Genotype.from_dict({**genotype().to_dict(), "settings": values})


def spoiled_files(count: int) -> list[bytes]:
    """Seeded damage to a valid file: bytes cut, swapped, replaced, and values of other types."""
    random_ = random.Random(0)
    good = json.dumps({"seed": 1, "genotypes": [genotype().to_dict()]})
    values = ["null", "-1", "1e400", "NaN", "9" * 5000, '"\\ud800"', "[[[]]]", "{}", "true", '"\x00"', "1.5"]
    spoiled = []
    for index in range(count):
        data = json.loads(good)
        node = data["genotypes"][0]["cells"]["normal"]
        places = [(data["genotypes"], 0), (data["genotypes"][0], "cells"), (node, "edges"), (node, "inputs")]
        places += [(node, "output"), (node["edges"], 1), (node["edges"][0], 0), (node["edges"][0], 1)]
        target, key = random_.choice(places)
        target[key] = "HERE"
        spoiled.append(json.dumps(data).replace('"HERE"', random_.choice(values)).encode())
        cut = random_.randrange(len(good))
        spoiled.append(good[:cut].encode())
        spoiled.append(good[:cut].encode() + bytes([random_.randrange(128, 256)]) + good[cut:].encode())
        spoiled.append(b"[" * (index * 997) + good.encode())
    return spoiled


def test_damaged_files_end_in_one_line(tmp_path, refusal):
    file, texts, accepted = tmp_path / "genotype.json", spoiled_files(80), []
    for text in texts:
        file.write_bytes(text)
        message = refusal(read_genotypes, file)
        if message is None:
            accepted.append(text)
        else:
            assert "genotype.json" in message, text
    assert len(texts) >= 300
    assert len(accepted) <= 1, accepted  # the first nesting is of depth 0


def test_paths_that_lead_nowhere(tmp_path):
    for name in ["missing", "a\0b", "n" * 5000, "nowhere/at/all"]:
        with pytest.raises(InputError, match="the folder of a run or a genotype file"):
            read_genotypes(f"{tmp_path}/{name}")


def test_an_empty_folder_and_an_empty_list(tmp_path):
    with pytest.raises(InputError, match="the folder of a run or a genotype file"):
        read_genotypes(tmp_path)
    (tmp_path / "genotype.json").write_text('{"genotypes": []}')
    with pytest.raises(InputError, match="at least one genotype"):
        read_genotypes(tmp_path)
