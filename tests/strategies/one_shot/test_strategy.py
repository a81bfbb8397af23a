"""OneShot: combinations of parts, labels, and the bilevel loop against a plain one."""

import copy
import math
import tempfile
from pathlib import Path

import pytest
import torch
from hydra.utils import get_class
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from nas_lightning.cli.build import factory_of, searched_parts
from nas_lightning.errors import InputError
from nas_lightning.strategies import (
    Adam,
    Darts,
    FairDarts,
    Gaea,
    Gumbel,
    HardConcrete,
    OneShot,
    PathDepth,
    PRDarts,
    SingleLevel,
    SkipLimit,
    Sparsity,
    WeightPerturbation,
)
from tests.strategies.conftest import build_search, quiet_trainer
from tests.strategies.one_shot.parts_by_name import GROUPS, options
from tests.strategies.test_resume import Run, StopAfter, differing
from tests.yamls import composed, small

# Parts in combinations that no paper has: each runs, and resumes to the same bits, or says why not.


BATCHES = 6  # of two epochs


@st.composite
def combinations(draw):
    """The words of a search: an option of each group, of regularizers up to two."""
    words = [f"sampler={draw(st.sampled_from(options('sampler')))}"]
    for group in [group for group in GROUPS if group not in ("sampler", "regularizer")]:
        words.append(f"{group}={draw(st.sampled_from(options(group)))}")
    terms = draw(st.lists(st.sampled_from(options("regularizer")), unique=True, max_size=2))
    words.append(f"regularizer=[{','.join(terms)}]")
    if "selection=evolution" in words:
        words += ["strategy.selection.population=3", "strategy.selection.generations=2"]
    if "freezing=gradient_matching" in words:
        words += ["strategy.freezing.steps=2", "strategy.freezing.threshold=0.8"]
    if "selection=candidates" in words:
        words.append("strategy.selection.candidates=3")
    return sorted(words)


def built(words, space="nasbench201"):
    """The search, or the message that refuses it."""
    try:
        return build_search("one_shot", space, *words)
    except InputError as error:
        return str(error)


def runs_or_says_why(words, batches, accumulated, space="nasbench201"):
    def search(strategy, _, *overrides):
        return build_search(strategy, space, *overrides)

    found = built(words, space)
    if isinstance(found, str):
        assert len(found.splitlines()) == 1
        assert len(found) < 250
        return
    name = " ".join(["one_shot", *words, f"strategy.accumulate_grad_batches={accumulated}"])
    with tempfile.TemporaryDirectory() as folder:
        first, second = (Path(folder) / part for part in ("whole", "parts"))
        whole = Run(search, quiet_trainer, name, first)
        for key, value in whole.strategy.state_dict().items():
            assert bool(torch.isfinite(value).all()), key
        whole.strategy.space.check(whole.strategy.derive()[0])
        taken = whole.trainer.global_step * accumulated
        Run(search, quiet_trainer, name, second, StopAfter(min(batches, taken)), every_step=True)
        if not (second / "last.ckpt").exists():  # stopped in its first step
            return
        again = Run(search, quiet_trainer, name, second, resume=second / "last.ckpt", every_step=True)
        assert not differing(whole.result(), again.result())


SLOWLY = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=8, **SLOWLY)
@given(combinations(), st.integers(2, BATCHES), st.sampled_from([1, 2]))
def test_a_few_combinations(words, batches, accumulated):
    runs_or_says_why(words, batches, accumulated)


@pytest.mark.slow
@settings(max_examples=150, **SLOWLY)
@given(combinations(), st.integers(2, BATCHES), st.sampled_from([1, 2]))
def test_many_combinations(words, batches, accumulated):
    runs_or_says_why(words, batches, accumulated)


@pytest.mark.slow
@settings(max_examples=100, **SLOWLY)
@given(combinations(), st.integers(2, BATCHES), st.sampled_from([1, 2]), st.sampled_from(options("space")))
def test_many_combinations_in_all_spaces(words, batches, accumulated, space):
    runs_or_says_why(words, batches, accumulated, space)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "sampler=uniform",
            "The strategy needs a selection, because the sampler Uniform has no parameters to derive a "
            "genotype from, got 'none' (in selection)",
        ),
        (
            "sampler=fair selection=candidates regularizer=[path]",
            "There can be no regularizer, because the sampler Fair has no parameters, "
            "got 'PathDepth' (in regularizer)",
        ),
        (
            "sampler=uniform selection=candidates strategy.arch_lr=0.1",
            "There can be no arch_lr, because the sampler Uniform has no parameters, "
            "got 0.1 (in strategy.arch_lr)",
        ),
        (
            "sampler=simplex arch_optimizer=adam",
            "`arch_optimizer` must be ExponentiatedGradient, because the parameters of Simplex lie on the "
            "simplex, got 'Adam' (in arch_optimizer)",
        ),
        (
            "arch_optimizer=exponentiated",
            "`arch_optimizer` must be Adam, because the parameters of Softmax do not lie on the simplex, "
            "got 'ExponentiatedGradient' (in arch_optimizer)",
        ),
        (
            "sampler=sigmoid regularizer=[beta]",
            "The sampler must have a softmax, because beta decay acts on the logits of a softmax, "
            "got 'Sigmoid' (in sampler)",
        ),
        (
            "sampler=simplex edge_weights=edges",
            "The sampler must be one of logits, because the weights of edges are a softmax, and one "
            "optimizer moves both, got 'Simplex' (in sampler)",
        ),
        (
            "regularizer=[anchor]",
            "This regularizer needs the sampler dirichlet, because the anchor is a Dirichlet distribution, "
            "got 'Softmax' (in sampler)",
        ),
        (
            "sampler=gumbel perturbation=random",
            "The sampler must be one of all operations, because a step computes only the sampled path, "
            "not its neighborhood, got 'Gumbel' (in sampler)",
        ),
        (
            "perturbation=adversarial arch_step=single_level",
            "`arch_step` must be first_order or second_order, because a perturbation needs a separate "
            "step of the weights, got 'SingleLevel' (in arch_step)",
        ),
        (
            "freezing=gradient_matching arch_step=single_level",
            "`arch_step` must be first_order or second_order, because freezing compares the gradients of "
            "training and validation images, got 'SingleLevel' (in arch_step)",
        ),
        (
            "regularizer=[lambda] arch_step=single_level",
            "`arch_step` must be first_order or second_order, because a term of the weights' loss needs a "
            "separate step of the weights, "
            "got 'SingleLevel' (in arch_step)",
        ),
    ],
)
def test_incompatible_parts_are_rejected(words, message):
    assert built(words.split()) == message


@pytest.mark.parametrize("words", ["edge_weights=edges", "auxiliary_skip=skip", "regularizer=[path]"])
def test_parts_that_need_edges(words):
    words = [words, "~supernet.partial"] if words == "edge_weights=edges" else [words]
    assert "edges" in built(words, "mlp")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "regularizer=[lambda]",
            "The cells of the space must share decisions, because the layers of this space have "
            "separate decisions, got 'mlp' (in space)",
        ),
        (
            "freezing=gradient_matching",
            "Freezing needs a space whose operations have weights, got 'none' (in space)",
        ),
    ],
)
def test_parts_that_need_cells_or_operations(words, message):
    assert built([words], "mlp") == message


NO_SKIPS = "space.ops=[none,nor_conv_1x1,nor_conv_3x3]"
NOT_LEARNED = "space.ops=[none,skip_connect,avg_pool_3x3]"


@pytest.mark.parametrize(
    ("words", "space", "message"),
    [
        (
            f"early_stop=skips {NO_SKIPS}",
            "nasbench201",
            "This early stop needs a space with skip connections, whose number ends the search",
        ),
        (
            "early_stop=skips",
            "nasbench1shot1_s1",
            "This early stop needs a space with skip connections, whose number ends the search",
        ),
        (
            f"early_stop=ranking {NOT_LEARNED}",
            "nasbench201",
            "This early stop needs a space with two operations with weights on an edge",
        ),
        (
            "early_stop=ranking",
            "mlp",
            "This early stop needs a space with two operations with weights on an edge",
        ),
        (
            f"regularizer=[path] {NOT_LEARNED}",
            "nasbench201",
            "This needs a space with learned operations on the edges from each node to the next",
        ),
        (
            "auxiliary_skip=skip space.ops=[skip_connect]",
            "nasbench201",
            "This needs a space that chooses skips and",
        ),
    ],
)
def test_parts_without_effect_in_a_space_are_rejected(words, space, message):
    assert built(words.split(), space).startswith(message)


def test_depth_needs_no_skips():
    strategy, _ = built(["regularizer=[path]", NO_SKIPS])
    assert float(strategy.regularization(strategy.relax()).detach()) < 0


def test_a_group_that_is_empty_costs_nothing():
    strategy, _ = built(["regularizer=[computed_sparsity]", "space.ops=[skip_connect,avg_pool_3x3]"])
    half = {"cell": torch.full((6, 2), 0.5)}
    term = strategy.regularizers[0].term({}, half, strategy.epoch, strategy.space.groups)
    assert float(term) == pytest.approx((0.01 + 0.005) * (0.5 - 0.2))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"regularizer": [SkipLimit()]}, "must be an instance of Term, got SkipLimit"),
        ({"regularizer": {"mine": 3}}, "must be an instance of Term, got 3"),
        ({"regularizer": PathDepth}, "must be .* an instance of Term, got <class"),
        ({"sampler": Gumbel}, "`sampler` must be an instance of Sampler, got <class"),
        ({"arch_step": Gumbel()}, "`arch_step` must be an instance of ArchStep, got Gumbel"),
    ],
)
def test_parts_of_another_kind_are_rejected(cell_space, parts, message):
    supernet = cell_space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    with pytest.raises(InputError, match=message):
        OneShot(cell_space, supernet, **parts)


def test_regularizer_accepts_one_term_and_null(cell_space, search):
    supernet = cell_space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    assert OneShot(cell_space, supernet, regularizer=PathDepth()).regularizers == (PathDepth(),)
    without = search("pr_darts", "nasbench201", "strategy.regularizer.path=null")[0]
    assert [type(term) for term in without.regularizers] == [Sparsity]


class Shift(WeightPerturbation):
    """A perturbation of somebody else's, which says nothing of the parts beside it."""

    def apply(self, weights, noise, epoch, sampler, slope):
        return {name: matrix + 0.1 for name, matrix in weights.items()}


def test_custom_part_without_effect_is_rejected(cell_space):
    supernet = cell_space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    assert OneShot(cell_space, supernet, perturbation=Shift()).label == "Softmax + Shift"
    with pytest.raises(InputError, match="`arch_step` must be first_order or second_order, because a pert"):
        OneShot(cell_space, supernet, perturbation=Shift(), arch_step=SingleLevel())


def test_label_names_the_paper_and_other_parts(search):
    for words, label in {
        "pr_darts": "PRDarts",
        "pr_darts sampler=gumbel strategy.sampler.tau_start=5": "PRDarts + Gumbel",
        "one_shot": "Softmax",
        "one_shot sampler=gumbel regularizer=[path]": "Gumbel + PathDepth",
        "darts arch_step=second_order": "Darts + SecondOrder",
        "reinmax": "ReinMaxDarts",
    }.items():
        name, *overrides = words.split()
        assert search(name, "nasbench201", *overrides)[0].label == label
    changed = search("pr_darts", "nasbench201", "sampler=gumbel", "strategy.sampler.tau_start=5")[0]
    assert changed.sampler == Gumbel(tau_start=5)
    assert changed.arch_lr == PRDarts.arch_lr


@pytest.mark.parametrize(
    ("words", "rate"),
    [("darts sampler=simplex", 0.1), ("gaea", 0.1), ("gaea sampler=softmax", 3e-4), ("drnas", 3e-4)],
)
def test_default_arch_lr_follows_the_optimizer(search, words, rate):
    name, *parts = words.split()
    strategy, data = search(name, "nasbench201", *parts)
    trainer = quiet_trainer(1, limit_train_batches=1)
    trainer.fit(strategy, data)
    assert trainer.optimizers[1].param_groups[0]["lr"] == rate


def test_yaml_has_the_parts_and_settings_of_its_class():
    """The class is the definition; the yaml offers its settings on the command line."""
    papers = set()
    for name in options("strategy"):
        sizes = [*small("space", "nasbench201"), *small("dataset", "fake")]
        cfg = composed("search", f"strategy={name}", "space=nasbench201", "dataset=fake", *sizes, "run=.")
        if not issubclass(get_class(cfg.strategy._target_), OneShot):
            continue
        parts = searched_parts(cfg)
        made = parts.build(factory_of(cfg.strategy))
        default = type(made)(made.space, made.supernet, parts.data)
        assert made.parts == default.parts, name
        assert (made.arch_lr, made.warmup_epochs) == (default.arch_lr, default.warmup_epochs), name
        for setting in (
            "lr",
            "lr_min",
            "momentum",
            "nesterov",
            "weight_decay",
            "clip",
            "accumulate_grad_batches",
        ):
            assert getattr(made, setting) == getattr(default, setting), (name, setting)
        papers.add(type(made))
    assert papers == {OneShot, *OneShot.__subclasses__()} - {Shift}


def test_parts_are_replaced_and_left_out(cell_space, supernet):
    search = PRDarts(cell_space, supernet(cell_space), sampler=Gumbel(), regularizer=None)
    assert (search.sampler, search.regularizers) == (Gumbel(), ())
    assert PRDarts.sampler == HardConcrete()  # the class is unchanged


# The loop that the bilevel strategies share, as DARTS runs it, against a plain loop in PyTorch.

LR, LR_MIN, EPOCHS = 0.2, 0.01, 3


def plain_search(supernet, arch, data, clip, warmup=0):
    """First-order DARTS in float64 as one would write it down; returns α after every step."""
    weights = list(supernet.parameters())
    sgd = torch.optim.SGD(weights, lr=LR, momentum=0.9, weight_decay=3e-4)
    adam = torch.optim.Adam(list(arch.values()), lr=3e-2, betas=(0.5, 0.999), weight_decay=1e-3)
    history = []
    for epoch in range(EPOCHS):
        sgd.param_groups[0]["lr"] = LR_MIN + (LR - LR_MIN) * (1 + math.cos(math.pi * epoch / EPOCHS)) / 2
        for batch in data.train_dataloader().source.batches(epoch, 0, len(data.train_dataloader())):
            if epoch >= warmup:
                adam.zero_grad()
                plain_loss(supernet, arch, batch["valid"]).backward()
                adam.step()
            sgd.zero_grad()
            plain_loss(supernet, arch, batch["train"]).backward()
            torch.nn.utils.clip_grad_norm_(weights, clip)
            sgd.step()
            history.append({name: alpha.detach().clone() for name, alpha in arch.items()})
    return history


def plain_loss(supernet, arch, batch):
    softmax = {name: alpha.exp() / alpha.exp().sum(dim=1, keepdim=True) for name, alpha in arch.items()}
    return F.cross_entropy(supernet(batch[0].double(), softmax), batch[1])


@pytest.mark.parametrize(
    ("space_of", "clip", "warmup"), [("cell_space", 5.0, 0), ("cell_space", 0.3, 1), ("darts_space", 5.0, 0)]
)
def test_equals_a_plain_loop(request, supernet, data, trainer, space_of, clip, warmup):
    space = request.getfixturevalue(space_of)
    settings = {"lr": LR, "lr_min": LR_MIN, "arch_lr": 3e-2, "clip": clip, "warmup_epochs": warmup}
    darts = Darts(space, supernet(space), **settings)
    plain = copy.deepcopy(darts.supernet).double()
    arch = {name: alpha.detach().double().requires_grad_() for name, alpha in darts.arch.items()}
    start = {name: alpha.detach().clone() for name, alpha in arch.items()}
    history = plain_search(plain, arch, data(augment=True), clip, warmup)
    trainer(EPOCHS, precision="64-true").fit(darts, data(augment=True))
    for name, alpha in darts.arch.items():
        torch.testing.assert_close(alpha.data, arch[name].data, rtol=0, atol=1e-11)
        assert float((alpha - start[name]).detach().abs().max()) > 0.01
        for step in history[: 4 * warmup]:
            assert torch.equal(step[name], start[name])
    for mine, theirs in zip(darts.supernet.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.data, theirs.data, rtol=0, atol=1e-10)


@pytest.mark.parametrize("order", [1, 2])
def test_warm_up_leaves_the_architecture_alone(cell_space, supernet, data, trainer, order):
    darts = Darts(cell_space, supernet(cell_space), warmup_epochs=2, order=order)
    start = darts.arch["cell"].detach().clone()
    moved = []
    end = darts.on_train_epoch_end

    def on_train_epoch_end():
        moved.append(not torch.equal(darts.arch["cell"], start))
        end()

    darts.on_train_epoch_end = on_train_epoch_end
    fit = trainer(3)
    fit.fit(darts, data())
    assert moved == [False, False, True]
    assert fit.optimizers[1].state[darts.arch["cell"]]["step"] == 4  # no step of Adam was taken before


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Darts, {}),
        (Darts, {"warmup_epochs": 1}),
        (FairDarts, {}),
        (Gaea, {"arch_step": SingleLevel()}),
        (Gaea, {}),
    ],
)
def test_accumulated_batches_are_one_batch(bare, cell_space, supernet, data, trainer, kind, settings):
    """Without batch norm: twice four images and once eight take the same steps, of both levels."""
    ends = []
    for batch_size, together in ((8, 1), (4, 2)):
        strategy = kind(cell_space, supernet(cell_space), lr=LR, accumulate_grad_batches=together, **settings)
        bare(strategy.supernet)
        fit = trainer(2, precision="64-true")
        fit.fit(strategy, data(batch_size=batch_size))
        assert fit.global_step == 4
        ends.append(strategy)
    for one, two in zip(ends[0].parameters(), ends[1].parameters(), strict=True):
        torch.testing.assert_close(one.data, two.data, rtol=0, atol=1e-12)


def test_remaining_batches_make_a_step(bare, cell_space, supernet, data, trainer):
    """Three batches by twos: the last one counts in full, and nothing waits for the next epoch."""
    ends = []
    for options_ in ({"accumulate_grad_batches": 3}, {"accumulate_grad_batches": 7}):
        strategy = Darts(cell_space, supernet(cell_space), lr=LR, **options_)
        bare(strategy.supernet)
        fit = trainer(2, precision="64-true")
        fit.fit(strategy, data(train_size=24))
        assert fit.global_step == 2
        ends.append(strategy)
    for one, two in zip(ends[0].parameters(), ends[1].parameters(), strict=True):
        assert torch.equal(one, two)


def test_clipping_ignores_architecture_gradients(cell_space, supernet, data, trainer):
    """However large the architecture's gradients are, the weights' step is the same."""
    ends = []
    for arch_scale in (1.0, 1e6):
        darts = Darts(
            cell_space, supernet(cell_space), clip=0.1, arch_lr=1e-12, arch_optimizer=Adam(weight_decay=0.0)
        )
        own = darts.arch_gradients

        def scaled(batch, own=own, arch_scale=arch_scale):
            return [arch_scale * gradient for gradient in own(batch)]

        darts.arch_gradients = scaled
        trainer(1, precision="64-true").fit(darts, data())
        ends.append([weight.detach() for weight in darts.weight_list])
    for one, two in zip(*ends, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-9)  # α differs by its learning rate, 10⁻¹²


def test_scores_are_the_softmax(darts_space, supernet):
    darts = Darts(darts_space, supernet(darts_space))
    for name, alpha in darts.arch.items():
        rows = [[math.exp(a) for a in row] for row in alpha.tolist()]
        expected = torch.tensor([[a / sum(row) for a in row] for row in rows])
        torch.testing.assert_close(darts.scores()[name], expected)
        assert torch.equal(darts.relax().weights[name].detach(), darts.scores()[name])


def test_a_loss_that_is_not_finite_ends_the_search(cell_space, supernet, data, trainer, refusal):
    darts = Darts(cell_space, supernet(cell_space))
    with torch.no_grad():
        darts.supernet.head.bias[0] = torch.inf
    message = refusal(lambda: trainer(2).fit(darts, data()))
    assert message.startswith("The loss is not finite in epoch 0: lower the learning rate")


@pytest.mark.parametrize("order", [0, 3, 1.5])
def test_invalid_order_is_rejected(cell_space, supernet, order):
    with pytest.raises(InputError, match="`order` must be 1 or 2"):
        Darts(cell_space, supernet(cell_space), order=order)


def test_logged_numbers(cell_space, supernet, data, trainer):
    """Entropy as it is at the end; the losses are the means of the last epoch's steps."""
    darts = Darts(cell_space, supernet(cell_space))
    losses = []
    own = darts.loss_and_logits

    def loss_and_logits(batch, relaxed):
        found = own(batch, relaxed)
        losses.append(float(found[0].detach()))
        return found

    darts.loss_and_logits = loss_and_logits
    fit = trainer(2)
    fit.fit(darts, data())
    logged = fit.callback_metrics
    second = losses[2 * 4 :]
    assert float(logged["valid_loss"]) == pytest.approx(sum(second[::2]) / 4, rel=1e-6)
    assert float(logged["train_loss"]) == pytest.approx(sum(second[1::2]) / 4, rel=1e-6)
    scores = darts.scores()["cell"]
    assert not any(name.startswith("weights") for name in logged)  # history.jsonl has them
    shares = [-sum(p * math.log(p) for p in row) / math.log(5) for row in scores.tolist()]
    assert float(logged["entropy/cell"]) == pytest.approx(sum(shares) / 6, rel=1e-6)


@pytest.mark.parametrize("space_of", ["cell_space", "darts_space"])
def test_checkpoint_cells_has_the_same_gradients(request, supernet, space_of, generator):
    """`checkpoint_cells` keeps the outputs of cells only: less memory, the same gradients."""
    space = request.getfixturevalue(space_of)
    network = supernet(space).double()
    x = torch.randn(4, 1, 8, 8, generator=generator, dtype=torch.float64)
    found, kept = [], []
    for again in (False, True):
        strategy = Darts(space, network, checkpoint_cells=again).double()
        for matrix in strategy.arch_list:
            matrix.data.copy_(torch.linspace(-1, 1, matrix.numel()).view_as(matrix))
        saved = []
        with saved_tensors_hooks(lambda tensor, saved=saved: saved.append(tensor) or tensor, lambda t: t):
            loss = F.cross_entropy(network(x, strategy.relax().weights), torch.arange(4) % 2)
        kept.append(sum(tensor.numel() for tensor in saved))
        found.append(torch.autograd.grad(loss, [*strategy.arch_list, *strategy.weight_list]))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert kept[1] < kept[0] / 2
