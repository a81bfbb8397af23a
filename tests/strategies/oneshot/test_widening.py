"""Supernets that grow while they are searched: what they keep, what is new, and that runs go on."""

import pytest
import torch

from nas_lightning.errors import InputError
from nas_lightning.spaces.graph import resize, widen
from nas_lightning.strategies import EdgeWeights, OneShot, Widening
from nas_lightning.strategies.one_shot.parts import Epoch
from tests.strategies.conftest import build_search, quiet_trainer
from tests.strategies.test_resume import Run, StopAfter, differing

pytestmark = pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
GROWING = "drnas partial=widening strategy.partial.stages=[4,2,1] supernet.channels=8"


def test_a_widened_weight_has_the_old_one_and_copies_of_its_channels(generator):
    weight = torch.randn(2, 3, 1, 1, generator=generator)
    wide = widen(weight, (4, 6, 1, 1), generator)
    assert torch.equal(wide[:2, :3], weight)
    rows = [[bool(torch.equal(wide[i, :3], weight[j])) for j in range(2)] for i in range(4)]
    assert all(any(row) for row in rows)
    columns = [[bool(torch.equal(wide[:2, i], weight[:, j])) for j in range(3)] for i in range(6)]
    assert all(any(column) for column in columns)


@pytest.mark.parametrize("space", ["cell_space", "darts_space"])
def test_a_supernet_that_grew_is_one_that_was_built_so(space, request, supernet, generator):
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


def test_the_search_goes_on_with_what_it_has(cell_space, supernet, data):
    """What a stage ends with is in what the next one starts with; the parameters are the same."""
    seen = []

    class Spy(OneShot):
        def _widen(self, partial):
            before = {n: p.detach().clone() for n, p in self.supernet.named_parameters()}
            arch = self.arch["cell"].detach().clone()
            super()._widen(partial)
            seen.append((before, {n: p.detach().clone() for n, p in self.supernet.named_parameters()}))
            assert torch.equal(arch, self.arch["cell"])

    search = Spy(cell_space, supernet(cell_space, channels=8, partial=4), partial=EdgeWeights(stages=(4, 2)))
    quiet_trainer(2).fit(search, data())
    before, after = seen[-1]
    grown = [name for name in before if before[name].shape != after[name].shape]
    assert grown
    assert all(".ops." in name for name in grown)
    for name, old in before.items():
        assert torch.equal(after[name][tuple(slice(n) for n in old.shape)], old)
    assert search.supernet.backbone.partial == 2


@pytest.mark.parametrize("batches", [2, 4, 5, 7, 8])
def test_it_resumes_to_the_same_bits_in_every_stage(batches, tmp_path):
    """A stage is an epoch of three batches; the checkpoint is that of the batch before."""
    whole = Run(build_search, quiet_trainer, GROWING, tmp_path / "whole")
    assert whole.strategy.supernet.backbone.partial == 1
    Run(build_search, quiet_trainer, GROWING, tmp_path, StopAfter(batches), every_step=True)
    again = Run(
        build_search, quiet_trainer, GROWING, tmp_path, resume=tmp_path / "last.ckpt", every_step=True
    )
    assert not differing(whole.result(), again.result())


def test_a_fresh_search_takes_the_form_of_a_checkpoint(tmp_path):
    """As the command line asks before it compares shapes; what is no stage's changes nothing."""
    grown = Run(build_search, quiet_trainer, GROWING, tmp_path)
    stored = torch.load(grown.checkpoint, map_location="meta", weights_only=True)
    fresh = build_search(*GROWING.split(" ", 1)[:1], "nasbench201", *GROWING.split()[1:])[0]
    for partial, changes in ((None, False), (3, False), ("1", False), (1, True)):
        fresh.resize_to_checkpoint({**stored, "partial": partial})
        shapes = {name: value.shape for name, value in fresh.state_dict().items()}
        assert (shapes == {name: value.shape for name, value in stored["state_dict"].items()}) == changes


def test_what_does_not_fit_is_refused(cell_space, supernet):
    with pytest.raises(InputError, match="expected a supernet with partial=4, the first stage's, got 1"):
        OneShot(cell_space, supernet(cell_space, channels=8), partial=Widening())
    with pytest.raises(InputError, match="expected stages of smaller and smaller K"):
        Widening((2, 2))
    with pytest.raises(InputError, match="expected one stage or more, with which the supernet begins"):
        Widening(())
    assert EdgeWeights(()).stages == ()
