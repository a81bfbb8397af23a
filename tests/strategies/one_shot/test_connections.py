"""Auxiliary skips, edge weights, and widening supernets."""

import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.spaces import DartsSpace, NasBench201
from nas_lightning.spaces.graph import resize, widen
from nas_lightning.spaces.supernet import mixture
from nas_lightning.strategies import EdgeWeights, OneShot, Widening
from nas_lightning.strategies.one_shot.connections import AuxiliarySkip, with_skip
from nas_lightning.strategies.one_shot.parts import Epoch
from nas_lightning.strategies.one_shot.samplers import Gumbel
from tests.strategies.conftest import build_search, quiet_trainer
from tests.strategies.test_resume import Run, StopAfter, differing

# The auxiliary skip against a cell that has one of its own.


def test_auxiliary_skip_adds_the_term_of_equation_4(generator):
    """x_j = Σ_i [β x_i + Σ_o w_o o(x_i)], node by node in a plain loop over the operations."""
    space = NasBench201()
    supernet = space.supernet(in_channels=1, num_classes=2, channels=3, cells=1).double()
    graph, group = supernet.backbone.stages[0][0].graph, space.groups["cell"]
    weights = torch.rand(6, 5, generator=generator, dtype=torch.float64)
    x = torch.randn(2, 3, 5, 5, generator=generator, dtype=torch.float64)
    found = graph([x], mixture(with_skip(weights, 0.7, group)))
    nodes = [x]
    for target in range(1, 4):
        total = torch.zeros_like(x)
        for item in graph.edge_ops[target]:
            total = total + weights[item.row, item.column] * graph.ops[item.key](
                torch.relu(nodes[item.source])
                if group.ops[item.column].startswith("nor_conv")
                else nodes[item.source]
            )
        for source, end in group.edges:
            if end == target:
                total = total + 0.7 * nodes[source]
        nodes.append(total)
    torch.testing.assert_close(found[-1], nodes[-1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(nodes=2)], ids=["nasbench201", "darts"])
def test_auxiliary_skip_fades_out_and_leaves_scores(space):
    supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=3)
    plain, search = (OneShot(space, supernet, auxiliary_skip=part) for part in (None, AuxiliarySkip()))
    for epoch, beta in ((0, 1.0), (2, 0.5), (4, 0.0)):
        plain.epoch = search.epoch = Epoch(epoch, 5)
        for name, group in space.groups.items():
            added = search.relax().weights[name] - plain.relax().weights[name]
            expected = torch.zeros(group.shape)
            expected[:, group.column("skip_connect")] = beta
            torch.testing.assert_close(added, expected)
            assert torch.equal(search.scores()[name], plain.scores()[name])
    assert search.derive() == plain.derive()


def test_auxiliary_skip_is_computed_with_sampled_paths():
    space = NasBench201()
    supernet = space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    search = OneShot(space, supernet, sampler=Gumbel(), auxiliary_skip=AuxiliarySkip())
    relaxed = search.relax()
    assert bool(relaxed.active["cell"][:, space.group.column("skip_connect")].all())
    assert float(relaxed.weights["cell"].detach().sum()) == pytest.approx(12.0)


# Supernets that grow while they are searched: what they keep, what is new, and that runs go on.

GROWING = "drnas edge_weights=widening strategy.edge_weights.stages=[4,2,1] supernet.channels=8"


def test_a_widened_weight_has_the_old_one_and_copies_of_its_channels(generator):
    weight = torch.randn(2, 3, 1, 1, generator=generator)
    wide = widen(weight, (4, 6, 1, 1), generator)
    assert torch.equal(wide[:2, :3], weight)
    rows = [[bool(torch.equal(wide[i, :3], weight[j])) for j in range(2)] for i in range(4)]
    assert all(any(row) for row in rows)
    columns = [[bool(torch.equal(wide[:2, i], weight[:, j])) for j in range(3)] for i in range(6)]
    assert all(any(column) for column in columns)


@pytest.mark.parametrize("space", ["cell_space", "darts_space"])
def test_grown_supernet_equals_a_built_one(space, request, supernet, generator):
    """It has the shapes, and with the same weights the same outputs."""
    space = request.getfixturevalue(space)
    grown, built = supernet(space, channels=8, partial=4), supernet(space, channels=8, partial=2)
    parameters = list(grown.parameters())
    grown.backbone.widen(2, generator)
    assert all(a is b for a, b in zip(grown.parameters(), parameters, strict=True))
    built.load_state_dict(grown.state_dict())
    x = torch.randn(2, 1, 8, 8, generator=generator)
    weights = {n: torch.rand(g.shape, generator=generator) for n, g in space.groups.items()}
    torch.testing.assert_close(grown(x, weights), built(x, weights))
    one, two = (torch.autograd.grad(net(x, weights).sum(), list(net.parameters())) for net in (grown, built))
    torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


def test_a_parameter_grows_although_its_gradients_node_is_held():
    """As DistributedDataParallel holds it from the start."""
    weight = torch.nn.Parameter(torch.ones(2))
    held = weight.expand_as(weight).grad_fn.next_functions[0][0]
    resize(weight, torch.ones(3))
    (gradient,) = torch.autograd.grad((weight**2).sum(), weight)
    assert gradient.tolist() == [2.0, 2.0, 2.0]
    assert held.variable is weight


@pytest.mark.parametrize(("epochs", "expected"), [(6, [4, 4, 2, 2, 1, 1]), (2, [4, 2]), (1, [4])])
def test_stages_have_equally_many_epochs(epochs, expected):
    assert [Widening((4, 2, 1)).partial(Epoch(number, epochs)) for number in range(epochs)] == expected


def test_widening_keeps_weights(cell_space, supernet, data):
    """What a stage ends with is in what the next one starts with; the parameters are the same."""
    seen = []

    class Spy(OneShot):
        def _widen(self, partial):
            before = {n: p.detach().clone() for n, p in self.supernet.named_parameters()}
            arch = self.arch["cell"].detach().clone()
            super()._widen(partial)
            seen.append((before, {n: p.detach().clone() for n, p in self.supernet.named_parameters()}))
            assert torch.equal(arch, self.arch["cell"])

    search = Spy(
        cell_space, supernet(cell_space, channels=8, partial=4), edge_weights=EdgeWeights(stages=(4, 2))
    )
    quiet_trainer(2).fit(search, data())
    before, after = seen[-1]
    grown = [name for name in before if before[name].shape != after[name].shape]
    assert grown
    assert all(".ops." in name for name in grown)
    for name, old in before.items():
        assert torch.equal(after[name][tuple(slice(n) for n in old.shape)], old)
    assert search.supernet.backbone.partial == 2


@pytest.mark.parametrize("batches", [2, 4, 5, 7, 8])
def test_widening_resumes_to_the_same_bits(batches, tmp_path):
    """A stage is an epoch of three batches; the checkpoint is that of the batch before."""
    whole = Run(build_search, quiet_trainer, GROWING, tmp_path / "whole", epochs=3)
    assert whole.strategy.supernet.backbone.partial == 1
    Run(build_search, quiet_trainer, GROWING, tmp_path, StopAfter(batches), every_step=True, epochs=3)
    again = Run(
        build_search,
        quiet_trainer,
        GROWING,
        tmp_path,
        resume=tmp_path / "last.ckpt",
        every_step=True,
        epochs=3,
    )
    assert not differing(whole.result(), again.result())


def test_resize_to_checkpoint(tmp_path):
    """As the command line asks before it compares shapes; what is no stage's changes nothing."""
    grown = Run(build_search, quiet_trainer, GROWING, tmp_path, epochs=3)
    stored = torch.load(grown.checkpoint, map_location="meta", weights_only=True)
    fresh = build_search(*GROWING.split(" ", 1)[:1], "nasbench201", *GROWING.split()[1:])[0]
    for partial, changes in ((None, False), (3, False), ("1", False), (1, True)):
        fresh.resize_to_checkpoint({**stored, "partial": partial})
        shapes = {name: value.shape for name, value in fresh.state_dict().items()}
        assert (shapes == {name: value.shape for name, value in stored["state_dict"].items()}) == changes


def test_invalid_stages_are_rejected(cell_space, supernet):
    with pytest.raises(InputError, match="The supernet must have partial=4, as the first stage, got 1"):
        OneShot(cell_space, supernet(cell_space, channels=8), edge_weights=Widening())
    with pytest.raises(InputError, match="`stages` must decrease"):
        Widening((2, 2))
    with pytest.raises(InputError, match="`stages` must have at least one entry"):
        Widening(())
    assert EdgeWeights(()).stages == ()
