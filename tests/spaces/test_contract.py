"""The contract of every space that a yaml in conf/space names."""

import copy
import inspect
import json
from collections import Counter
from functools import partial

import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.genotype import Cell, Genotype, read_genotypes, write_genotypes
from nas_lightning.spaces import DerivedNetwork, SearchSpace, make_space
from nas_lightning.spaces.operations import SEARCH_NORM
from tests.spaces.conftest import SPACES, WITH_SUPERNET
from tests.yamls import OWN, composed, options

OF_THE_TASK = {"genotype", "in_channels", "num_classes", "norm"}


def decisions(genotype):
    """Every edge with the name of its cell, counted."""
    return Counter((name, edge) for name, cell in genotype for edge in cell.edges)


def test_yaml_lists_every_option_under_the_right_names(named):
    for what in ("supernet", "network"):
        options = set(inspect.signature(getattr(named.space, what)).parameters) - OF_THE_TASK
        assert set(named.config[what]) == options


def test_hydra_places_the_options_at_the_top():
    for name in options("space"):
        config = composed("search", f"space={name}")
        assert {"space", "supernet", "network"} <= set(config)
        assert "_target_" in config.space


def test_it_has_a_name_cells_and_groups(space, generator):
    assert isinstance(space, SearchSpace)
    assert {name for name, _ in space.sample(generator)} == set(space.cells)
    for group in space.groups.values():
        assert group.shape == (len(group.rows), len(group.ops))
        assert len(set(group.rows)) == len(group.rows)
        assert 1 <= group.draw < len(group.ops)
        assert [group.column(op) for op in group.ops] == list(range(len(group.ops)))
        with pytest.raises(InputError):
            group.column("no such operation")


def test_samples_repeat_with_the_seed(space):
    def draw(seed):
        generator = torch.Generator().manual_seed(seed)
        return [space.sample(generator) for _ in range(5)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_space_without_groups_has_no_supernet(space, generator):
    if not space.groups:
        for call in (lambda: space.discretize({}), lambda: space.one_hot(space.sample(generator))):
            with pytest.raises(InputError, match=r"needs a space with a supernet"):
                call()
        with pytest.raises(InputError, match=r"needs a space with a supernet"):
            space.supernet(in_channels=3, num_classes=5)


def test_neighbors_know_each_other(space, generator):
    for _ in range(3):
        genotype = space.sample(generator)
        near = space.neighbors(genotype)
        assert len(set(near)) == len(near) > 0
        assert genotype not in near
        for other in near[:: max(1, len(near) // 5)]:
            space.check(other)
            assert genotype in space.neighbors(other)


def test_neighbors_differ_in_one_edge(on_edges, generator):
    space = on_edges.space
    for _ in range(3):
        genotype = space.sample(generator)
        for other in space.neighbors(genotype):
            assert sum((decisions(genotype) - decisions(other)).values()) == 1
            assert sum((decisions(other) - decisions(genotype)).values()) == 1


def test_mutation_is_a_neighbor(space, generator):
    genotype = space.sample(generator)
    near = set(space.neighbors(genotype))
    mutated = {space.mutate(genotype, generator) for _ in range(40)}
    assert mutated <= near
    assert len(mutated) > min(5, len(near) - 1)


def test_round_trips(space, generator, tmp_path):
    genotypes = [space.sample(generator) for _ in range(20)]
    for genotype in genotypes:
        data = genotype.to_dict()
        assert space.parse(space.notation(genotype)) == genotype
        assert space.parse(data) == genotype
        assert space.parse(json.dumps(data)) == genotype
        assert space.parse({**data, "source": "a run", "score": 0.5}) == genotype
        assert Genotype.from_dict(json.loads(json.dumps(data))) == genotype
    assert read_genotypes(write_genotypes(tmp_path / "genotype.json", genotypes)) == genotypes


def test_a_space_is_made_again_from_its_name_and_settings(space):
    again = make_space(space.name, space.settings, folders=OWN)
    assert type(again) is type(space)
    assert again.settings == space.settings
    assert again.groups == space.groups


def test_genotypes_carry_the_settings_of_the_space(small_space, generator):
    """At settings that are not the space's own, as the `# Small:` line of its yaml has some."""
    space = small_space
    genotype = space.sample(generator)
    parsed = space.parse(space.notation(genotype))
    for one in (genotype, parsed, space.mutate(genotype, generator), *space.neighbors(genotype)[:3]):
        home = make_space(one.space, one.settings, folders=OWN)
        home.check(one)
        assert home.settings == one.settings
        assert one.space != space.name or one.settings == space.settings
    if space.groups:
        assert space.discretize(space.one_hot(genotype)).settings == genotype.settings


def test_one_hot_and_discretize_are_inverse(searchable, generator):
    space = searchable.space
    samples = [space.sample(generator) for _ in range(20)]
    for genotype in samples + space.neighbors(samples[0])[::7]:
        weights = space.one_hot(genotype)
        assert {name: tuple(w.shape) for name, w in weights.items()} == {
            name: group.shape for name, group in space.groups.items()
        }
        assert all(set(w.flatten().tolist()) <= {0.0, 1.0} for w in weights.values())
        assert space.discretize(weights) == genotype
        noise = {name: w + 0.4 * torch.rand_like(w) for name, w in weights.items()}
        assert space.discretize(noise) == genotype


def test_one_hot_has_one_entry_per_edge(on_edges, generator):
    genotype = on_edges.space.sample(generator)
    weights = on_edges.space.one_hot(genotype)
    assert sum(int(w.sum()) for w in weights.values()) == len(genotype.ops)


def test_discretize_refuses_scores_that_do_not_fit(searchable):
    space = searchable.space
    good = {name: torch.zeros(group.shape) for name, group in space.groups.items()}
    name = next(iter(good))
    with pytest.raises(ValueError, match="must have shape"):
        space.discretize({**good, name: good[name][:-1]})
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="must be finite, got"):
            space.discretize({**good, name: torch.full_like(good[name], value)})


def test_other_spaces_genotypes_are_refused(space, generator):
    genotype = space.sample(generator)
    stranger = Genotype("elsewhere", dict(genotype))
    other_cells = Genotype(space.name, {"unheard_of": Cell([("none", 0, 1)], 1, [1])})
    size = {"in_channels": 3, "num_classes": 5}
    for wrong in (stranger, other_cells):
        calls = (space.one_hot, space.neighbors, space.check, lambda g: space.network(g, **size))
        for call in (*calls, lambda g: space.parse(g.to_dict())):
            with pytest.raises(InputError):
                call(wrong)


def test_networks_train_at_any_size(named, generator):
    space, genotype = named.space, named.space.sample(generator)
    for size in [(16, 16), (17, 13), (8, 8)]:
        for in_channels, num_classes in [(1, 2), (3, 5)]:
            task, x = (
                {"in_channels": in_channels, "num_classes": num_classes},
                torch.randn(2, in_channels, *size),
            )
            network = space.network(genotype, **named.small("network", **task))
            check_training(network, network(x), num_classes)
            weights = {
                name: torch.rand(group.shape, requires_grad=True) for name, group in space.groups.items()
            }
            if weights:
                supernet = space.supernet(**named.small("supernet", **task))
                check_training(supernet, supernet(x, weights), num_classes)
            assert all(w.grad is not None and bool(torch.isfinite(w.grad).all()) for w in weights.values())


def test_network_fulfills_the_protocol(named, generator):
    network = named.space.network(named.space.sample(generator), **named.small("network"))
    assert isinstance(network, DerivedNetwork)
    parts = {name.partition(".")[0] for name, _ in network.named_parameters()}
    assert {"backbone", "head"} <= parts <= {"backbone", "head", "auxiliary"}
    assert ("auxiliary" in parts) == (network.auxiliary is not None)
    network.set_drop_path(0.2)


def check_training(module, logits, num_classes):
    assert logits.shape == (2, num_classes)
    logits.square().sum().backward()
    assert not [n for n, p in module.named_parameters() if p.grad is None and "auxiliary" not in n]


def test_a_path_of_the_supernet_is_the_derived_network(on_edges, generator):
    """With the same weights, in float64: the network inherits by loading the entries that it has."""
    for size in [(16, 16), (15, 10)]:
        named, space = on_edges, on_edges.space
        shared = set(named.config["supernet"]) & set(named.config["network"])
        options = {name: value for name, value in named.small("supernet").items() if name in shared}
        task = {"in_channels": 3, "num_classes": 5}
        supernet = space.supernet(**task, **options).double()
        x = torch.randn(2, 3, *size, dtype=torch.float64)
        for _ in range(4):
            genotype = space.sample(generator)
            build = {**task, **options, "norm": SEARCH_NORM, "auxiliary": False}
            network = space.network(genotype, **build).double()
            state = supernet.state_dict()
            assert set(network.state_dict()) <= set(state)
            network.load_state_dict({key: state[key] for key in network.state_dict()})
            torch.testing.assert_close(
                supernet(x, space.one_hot(genotype)), network(x), rtol=1e-10, atol=1e-10
            )


def test_operations_of_zero_weight_are_not_computed(searchable, generator):
    """A path of exact ones, of the same as numbers, and of the same with a gradient for what is active."""
    space, x = searchable.space, torch.randn(2, 3, 16, 16, dtype=torch.float64)
    supernet = space.supernet(**searchable.small("supernet")).double()
    path = {name: w.double() for name, w in space.one_hot(space.sample(generator)).items()}
    plain = supernet(x, path)
    plain.sum().backward()
    unused = {name for name, parameter in supernet.named_parameters() if parameter.grad is None}
    networks = [space.network(space.sample(generator), **searchable.small("network")) for _ in range(20)]
    sizes = {sum(p.numel() for p in network.parameters()) for network in networks}
    assert bool(unused) == (len(sizes) > 1)  # the paths of perceptrons differ in what has no parameters
    supernet.zero_grad()
    learned = {name: w.clone().requires_grad_() for name, w in path.items()}
    chosen = supernet(x, learned, {name: w > 0 for name, w in path.items()})
    chosen.sum().backward()
    assert unused == {name for name, parameter in supernet.named_parameters() if parameter.grad is None}
    torch.testing.assert_close(plain, chosen)
    torch.testing.assert_close(plain, supernet(x, learned))
    doubled = {name: 2.0 * w for name, w in path.items()}
    assert not torch.allclose(plain, supernet(x, doubled))


def test_a_supernet_stores_no_architecture(searchable):
    """Its parameters do not depend on the weights, and every one belongs to an operation or to the frame."""
    space, x = searchable.space, torch.randn(2, 3, 16, 16)
    supernet = space.supernet(**searchable.small("supernet"))
    before = {key: value.clone() for key, value in supernet.named_parameters()}
    outputs = []
    for value in (0.1, 0.9):
        weights = {name: torch.full(group.shape, value) for name, group in space.groups.items()}
        weights = {name: w * torch.rand_like(w) for name, w in weights.items()}
        outputs.append(supernet(x, weights))
    assert not torch.allclose(*outputs)
    assert all(torch.equal(before[key], value) for key, value in supernet.named_parameters())


def test_impossible_sizes_are_refused(named, generator):
    for wrong in [{"num_classes": 0}, {"cells": 0}, {"channels": 0}]:
        for what in ("supernet", "network") if named.space.groups else ("network",):
            if set(wrong) <= {*named.config[what], "num_classes"}:
                build = getattr(named.space, what)
                arguments = () if what == "supernet" else (named.space.sample(generator),)
                with pytest.raises(InputError):
                    build(*arguments, **named.small(what, **wrong))


QUICKLY_COMPILED = ("mlp", "nasbench201")


@pytest.mark.parametrize(
    "option",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICKLY_COMPILED)) for name in WITH_SUPERNET],
)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler reads all attributes
def test_each_cell_compiles_to_one_graph(option, generator, monkeypatch):
    named, cells = SPACES[option], []
    whole = partial(torch.nn.Module.compile, backend="eager", fullgraph=True)  # raises if a graph breaks
    plain = named.space.supernet(**named.small("supernet"))
    compiled = copy.deepcopy(plain)
    compiled.backbone.compile_cells()
    x = torch.randn(4, 3, 16, 16, generator=generator)
    arch = {
        name: torch.rand(g.shape, generator=generator).requires_grad_()
        for name, g in named.space.groups.items()
    }
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.Module, "compile", lambda module: (cells.append(module), whole(module)))
        for wanted in (lambda net: list(net.parameters()), lambda net: list(arch.values())):
            found = []
            for net in (plain, compiled):
                loss = net(x, arch).square().mean()
                found.append((loss, *torch.autograd.grad(loss, wanted(net), allow_unused=True)))
            for a, b in zip(*found, strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert len(cells) == len({*map(id, cells)}) == len(compiled.backbone.widths)
    assert {*map(id, cells)} <= {id(module) for module in compiled.modules()}
