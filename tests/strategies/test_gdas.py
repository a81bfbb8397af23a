"""GDAS computes one path a step, and every parameter of a row learns from it."""

import torch
from torch.nn import functional as F

from nas_lightning.spaces.graph import CellGraph
from nas_lightning.strategies import Gdas


def hooked(network):
    """The (cell, key) of every operation that a forward pass computes."""
    calls = []
    for graph in network.modules():
        if isinstance(graph, CellGraph):
            for key, op in graph.ops.items():
                first = op[0] if isinstance(op, torch.nn.Sequential) else op
                first.register_forward_hook(lambda *_, key=key, graph=graph: calls.append((id(graph), key)))
    return calls


def test_one_operation_an_edge_is_computed(cell_space, supernet, generator):
    network = supernet(cell_space)
    calls, gdas = hooked(network), Gdas(cell_space, network)
    graphs = [module for module in network.modules() if isinstance(module, CellGraph)]
    for _ in range(20):
        calls.clear()
        relaxed = gdas.relax()
        assert relaxed.active["cell"].sum(dim=1).tolist() == [1] * 6
        network(torch.randn(2, 1, 8, 8, generator=generator), relaxed.weights, relaxed.active)
        computed = relaxed.active["cell"][:, 1:].sum()  # the first column is `none`
        for graph in graphs:
            of_graph = [key for owner, key in calls if owner == id(graph)]
            keys = {
                item.key
                for items in graph.edge_ops
                for item in items
                if relaxed.active["cell"][item.row][item.column]
            }
            assert sorted(of_graph) == sorted(keys)  # what edges share is computed once
            assert len(of_graph) <= int(computed)


def test_gradient_reaches_every_parameter_of_a_row(cell_space, supernet, generator):
    """∂L/∂β_k = Σ_o (∂L/∂w_o) s_o (δ_ok − s_k)/τ with s the soft sample; ∂L/∂w_o = 0 unless o is computed."""
    gdas = Gdas(cell_space, supernet(cell_space), tau_start=2.0, tau_end=2.0).double()
    replay = torch.Generator()
    replay.set_state(gdas.generator.get_state())
    relaxed = gdas.relax()
    weights = {"cell": relaxed.weights["cell"].detach().requires_grad_()}
    x, y = torch.randn(4, 1, 8, 8, generator=generator).double(), torch.arange(4) % 3
    loss = F.cross_entropy(gdas.supernet(x, relaxed.weights, relaxed.active), y)
    (found,) = torch.autograd.grad(loss, gdas.arch_list)
    outer = torch.autograd.grad(
        F.cross_entropy(gdas.supernet(x, weights, relaxed.active), y), weights["cell"]
    )[0]
    u = torch.rand(6, 5, generator=replay, dtype=torch.float64)
    soft = torch.softmax((gdas.arch["cell"].detach() - torch.log(-torch.log(u))) / 2.0, dim=1)
    assert torch.equal(soft.argmax(dim=1), relaxed.active["cell"].int().argmax(dim=1))
    expected = (outer * soft - soft * (outer * soft).sum(dim=1, keepdim=True)) / 2.0
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)
    learns = relaxed.active["cell"][:, 0].logical_not()  # `none` computes nothing, so nothing follows from it
    assert bool((found[learns] != 0).all(dim=1).any())
    assert bool((outer[~relaxed.active["cell"]] == 0).all())


def test_temperature_falls_once_an_epoch(search, trainer):
    gdas, data = search("gdas", "nasbench201", "strategy.sampler.tau_start=4", "strategy.sampler.tau_end=1")
    taus = []
    own = gdas.relax

    def relax(noise=None):
        taus.append(gdas.parts.sampler.tau(gdas.epoch))
        return own(noise)

    gdas.relax = relax
    trainer(4).fit(gdas, data)
    assert taus == [tau for tau in (4.0, 3.0, 2.0, 1.0) for _ in range(2 * 3)]
