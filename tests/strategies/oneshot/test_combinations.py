"""Parts in combinations that no paper has: each runs, and resumes to the same bits, or says why not."""

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nas_lightning.errors import InputError
from nas_lightning.strategies import Gumbel, OneShot, PathDepth, SingleLevel, SkipLimit, WeightPerturbation
from tests.strategies.conftest import build_search, quiet_trainer
from tests.strategies.oneshot.parts_by_name import GROUPS, options
from tests.strategies.test_resume import Run, StopAfter, differing

pytestmark = pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
BATCHES = 9  # of three epochs


@st.composite
def combinations(draw):
    """The words of a search: an option of each group, of regularizers up to two."""
    words = [f"sampler={draw(st.sampled_from(options('sampler')))}"]
    for group in GROUPS.keys() - {"sampler", "regularizer"}:
        words.append(f"{group}={draw(st.sampled_from(options(group)))}")
    terms = draw(st.lists(st.sampled_from(options("regularizer")), unique=True, max_size=2))
    words.append(f"regularizer=[{','.join(terms)}]")
    if "selection=evolution" in words:
        words += ["strategy.selection.population=3", "strategy.selection.generations=2"]
    if "freezing=matching" in words:
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


@settings(max_examples=6, **SLOWLY)
@given(combinations())
def test_bfloat16(words):
    found = built(words)
    if not isinstance(found, str):
        strategy, data = found
        quiet_trainer(1, precision="bf16-mixed").fit(strategy, data)
        assert all(bool(torch.isfinite(value).all()) for value in strategy.state_dict().values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "sampler=uniform",
            "expected a selection, because the sampler Uniform has no parameters to derive a genotype from, "
            "got 'none' (in selection)",
        ),
        (
            "sampler=fair selection=candidates regularizer=[path]",
            "expected no regularizer, because the sampler Fair has no parameters, "
            "got 'PathDepth' (in regularizer)",
        ),
        (
            "sampler=uniform selection=candidates strategy.arch_lr=0.1",
            "expected no arch_lr, because the sampler Uniform has no parameters, "
            "got 0.1 (in strategy.arch_lr)",
        ),
        (
            "sampler=simplex arch_optimizer=adam",
            "expected ExponentiatedGradient, because the parameters of Simplex lie on the simplex, "
            "got 'Adam' (in arch_optimizer)",
        ),
        (
            "arch_optimizer=exponentiated",
            "expected Adam, because the parameters of Softmax do not lie on the simplex, "
            "got 'ExponentiatedGradient' (in arch_optimizer)",
        ),
        (
            "sampler=sigmoid regularizer=[beta]",
            "expected a sampler with a softmax, because beta decay acts on the logits of a softmax, "
            "got 'Sigmoid' (in sampler)",
        ),
        (
            "sampler=simplex partial=edges",
            "expected a sampler of logits, because the weights of edges are a softmax, and one optimizer "
            "moves both, got 'Simplex' (in sampler)",
        ),
        (
            "regularizer=[anchor]",
            "expected the sampler dirichlet, because the anchor is a Dirichlet distribution, "
            "got 'Softmax' (in sampler)",
        ),
        (
            "sampler=gumbel perturbation=random",
            "expected a sampler of all operations, because a sampled path has no neighborhood that steps "
            "compute, got 'Gumbel' (in sampler)",
        ),
        (
            "perturbation=adversarial arch_step=single_level",
            "expected an arch_step beside it, because a perturbation is for the weights' own step, "
            "got 'SingleLevel' (in arch_step)",
        ),
        (
            "freezing=matching arch_step=single_level",
            "expected an arch_step on both, because the gradients of training images are compared with those "
            "of validation images, got 'SingleLevel' (in arch_step)",
        ),
        (
            "regularizer=[lambda] arch_step=single_level",
            "expected an arch_step beside it, because a term of the weights' loss is for their own step, "
            "got 'SingleLevel' (in arch_step)",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(words, message):
    assert built(words.split()) == message


@pytest.mark.parametrize("words", ["partial=edges", "auxiliary=skip", "regularizer=[path]"])
def test_parts_that_need_edges(words):
    words = [words, "~supernet.partial"] if words == "partial=edges" else [words]
    assert "edges" in built(words, "mlp")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "regularizer=[lambda]",
            "expected a space whose cells share decisions, because the layers of this one decide by "
            "themselves, got 'mlp' (in space)",
        ),
        (
            "freezing=matching",
            "expected a space whose operations have weights of their own, which may stop to learn, "
            "got 'none' (in space)",
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
        (f"stop=skips {NO_SKIPS}", "nasbench201", "expected a space that chooses skips, whose number ends"),
        ("stop=skips", "nasbench1shot1_s1", "expected a space that chooses skips, whose number ends"),
        (f"stop=ranking {NOT_LEARNED}", "nasbench201", "expected a space with two learned operations on an"),
        ("stop=ranking", "mlp", "expected a space with two learned operations on an edge, whose order may"),
        (f"regularizer=[path] {NOT_LEARNED}", "nasbench201", "expected a space with learned operations on"),
        ("auxiliary=skip space.ops=[skip_connect]", "nasbench201", "expected a space that chooses skips and"),
    ],
)
def test_parts_that_would_do_nothing_in_a_space(words, space, message):
    assert built(words.split(), space).startswith(message)


def test_depth_needs_no_skips():
    strategy, _ = built(["regularizer=[path]", NO_SKIPS])
    assert float(strategy.regularization().detach()) < 0


def test_a_group_that_is_empty_costs_nothing():
    words = ["regularizer=[sparsity]", "strategy.regularizer.sparsity.pooling_group=true"]
    strategy, _ = built([*words, "space.ops=[skip_connect,avg_pool_3x3]"])
    half = {"cell": torch.full((6, 2), 0.5)}
    term = strategy.parts.arch_terms[0].term({}, half, strategy.epoch, strategy.space.groups)
    assert float(term) == pytest.approx((0.01 + 0.005) * 0.5)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"regularizer": [SkipLimit()]}, r"must be an instance of Term, got SkipLimit"),
        ({"regularizer": {"mine": 3}}, "must be an instance of Term, got 3"),
        ({"regularizer": PathDepth}, "must be .* an instance of Term, got <class"),
        ({"sampler": Gumbel}, "`sampler` must be an instance of Sampler, got <class"),
        ({"arch_step": Gumbel()}, "`arch_step` must be an instance of ArchStep, got Gumbel"),
    ],
)
def test_what_is_no_part_of_its_kind_is_refused(cell_space, parts, message):
    supernet = cell_space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    with pytest.raises(InputError, match=message):
        OneShot(cell_space, supernet, **parts)


def test_a_single_regularizer_needs_no_list_and_null_leaves_one_out(cell_space, search):
    supernet = cell_space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    assert OneShot(cell_space, supernet, regularizer=PathDepth()).parts.regularizers == (PathDepth(),)
    without = search("pr_darts", "nasbench201", "strategy.regularizer.path=null")[0]
    assert without.label == "HardConcrete + Sparsity"


class Shift(WeightPerturbation):
    """A perturbation of somebody else's, which says nothing of the parts beside it."""

    def apply(self, weights, noise, epoch, sampler, slope):
        return {name: matrix + 0.1 for name, matrix in weights.items()}


def test_a_part_of_somebody_elses_is_not_accepted_where_it_would_do_nothing(cell_space):
    supernet = cell_space.supernet(in_channels=1, num_classes=2, channels=2, cells=1)
    assert OneShot(cell_space, supernet, perturbation=Shift()).label == "Softmax + Shift"
    with pytest.raises(InputError, match="expected an arch_step beside it, because a perturbation is for"):
        OneShot(cell_space, supernet, perturbation=Shift(), arch_step=SingleLevel())


def test_a_paper_with_another_part_is_not_called_by_its_name(search):
    assert search("pr_darts", "nasbench201")[0].label == "PRDarts"
    changed = search("pr_darts", "nasbench201", "sampler=gumbel")[0]
    assert changed.label == "Gumbel + Sparsity + PathDepth"
    assert changed.arch_lr == search("pr_darts", "nasbench201")[0].arch_lr


@pytest.mark.parametrize(
    ("words", "rate"),
    [("darts sampler=simplex", 0.1), ("gaea", 0.1), ("gaea sampler=softmax", 3e-4), ("drnas", 3e-4)],
)
def test_a_papers_rate_is_that_of_the_optimizer_that_its_sampler_takes(search, words, rate):
    name, *parts = words.split()
    strategy, data = search(name, "nasbench201", *parts)
    trainer = quiet_trainer(1, limit_train_batches=1)
    trainer.fit(strategy, data)
    assert trainer.optimizers[1].param_groups[0]["lr"] == rate


def test_a_paper_may_have_a_sampler_without_parameters(search):
    words = ("sampler=uniform", "selection=candidates", "strategy.selection.candidates=2")
    assert search("darts", "nasbench201", *words)[0].label == "RandomWS"


def test_a_composition_is_called_what_the_paper_with_these_parts_is(search):
    assert search("darts", "nasbench201", "sampler=gumbel")[0].label == "Gdas"
    assert search("one_shot", "nasbench201", "sampler=simplex")[0].label == "Gaea"


@pytest.mark.parametrize("name", [name for name in options("strategy") if name not in ("random",)])
def test_a_papers_class_has_the_parts_of_its_yaml(search, name):
    from nas_lightning import strategies

    strategy, data = search(name, "nasbench201")
    if not isinstance(strategy, OneShot) or not hasattr(strategies, strategy.label):
        return
    paper = getattr(strategies, strategy.label)
    if not issubclass(paper, OneShot):  # the name of a sampler alone
        return
    selects = strategy.parts.selection is not None
    made = paper(strategy.space, strategy.supernet, *([data] if selects else []))
    for kind in ("sampler", "arch_step", "arch_optimizer", "partial", "auxiliary", "perturbation"):
        assert getattr(made.parts, kind) == getattr(strategy.parts, kind), kind
    assert made.parts.regularizers == strategy.parts.regularizers
    if not selects:
        default = made.parts.arch_optimizer.default_lr
        assert (made.arch_lr or default) == (strategy.arch_lr or default)
