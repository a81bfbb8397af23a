"""Learning rates against their formulas, epoch for epoch; optimizers against torch's own."""

import math

import pytest
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from torch import nn

from nas_lightning.errors import InputError
from nas_lightning.training.optimizers import build_optimizer, build_scheduler, parameter_groups

LR, EPOCHS = 0.025, 7


def make_optimizer(lr=LR):
    return build_optimizer([nn.Parameter(torch.zeros(2))], "momentum", lr=lr)


def rates(schedule, epochs=EPOCHS, lr=LR, **options):
    """The rate that each epoch is trained with."""
    optimizer = make_optimizer(lr)
    scheduler = build_scheduler(optimizer, schedule, epochs=epochs, **options)
    found = []
    for epoch in range(epochs):
        found.append(optimizer.param_groups[0]["lr"])
        scheduler.step(epoch + 1)
    return found, optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("lr_min", [0.0, 0.001])
@pytest.mark.parametrize("epochs", [1, 2, EPOCHS])
def test_cosine_is_the_formula(epochs, lr_min):
    found, afterwards = rates("cosine", epochs, lr_min=lr_min)
    formula = [lr_min + (LR - lr_min) * (1 + math.cos(math.pi * e / epochs)) / 2 for e in range(epochs)]
    assert found == pytest.approx(formula, rel=1e-14, abs=0)
    assert afterwards == lr_min  # and it does not start again


def test_linear_is_the_formula():
    found, afterwards = rates("linear", lr_min=0.001)
    assert found == pytest.approx([LR - (LR - 0.001) * e / EPOCHS for e in range(EPOCHS)], rel=1e-14)
    assert afterwards == 0.001


def test_exponential_is_the_formula():
    """DARTS' ImageNet recipe: × 0.97 after each epoch (arXiv:1806.09055, appendix A.2.3)."""
    found, afterwards = rates("exponential", lr_decay=0.97)
    assert found == pytest.approx([LR * 0.97**e for e in range(EPOCHS)], rel=1e-14)
    assert afterwards == pytest.approx(LR * 0.97**EPOCHS, rel=1e-14)
    above = rates("exponential", lr_decay=0.9, lr_min=0.005, warmup_epochs=3)[0][3:]
    assert above == pytest.approx([0.005 + 0.02 * 0.9**e for e in range(4)])


def test_the_linear_schedule_of_public_imagenet_code():
    """250 epochs from 0.5, as `adjust_lr` and the warm-up of shuyao95/HNAS' train_imagenet.py set them."""
    found, afterwards = rates("linear_tail", 250, lr=0.5, warmup_epochs=5)
    assert found[:6] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.5 * 240 / 245])
    assert found[125] == pytest.approx(0.5 * 120 / 245)
    assert found[243:] == pytest.approx([0.5 / 245 * n for n in (2, 1, 1, 0.8, 0.6, 0.4, 0.2)])
    assert afterwards == 0
    without = rates("linear_tail", 250, lr=0.1)[0]
    assert without[:2] == pytest.approx([0.1, 0.1 * 244 / 245])  # PR-DARTS: no warm-up below 257 images


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_warm_up_rises_to_the_rate_and_the_rest_decays(schedule):
    found, afterwards = rates(schedule, warmup_epochs=3, warmup_lr=0.01)
    assert found[:3] == pytest.approx([0.01, 0.015, 0.02])
    decay = rates(schedule, EPOCHS - 3)[0]
    assert found[3:] == pytest.approx(decay)
    assert found[3] == LR
    assert afterwards == 0


def test_warm_up_starts_with_one_step_by_default():
    assert rates("linear", warmup_epochs=4)[0][:5] == pytest.approx([LR * k / 5 for k in range(1, 6)])


def test_groups_keep_their_own_rates():
    optimizer = make_optimizer()
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "lr": 2 * LR})
    build_scheduler(optimizer, "linear", epochs=10).step(5)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([LR / 2, LR])


def test_state_continues_where_it_was():
    scheduler = build_scheduler(make_optimizer(), "cosine", epochs=EPOCHS, lr_min=0.001)
    optimizer = make_optimizer(lr=0.5)
    restored = build_scheduler(optimizer, "cosine", epochs=3)
    restored.load_state_dict(scheduler.state_dict())
    restored.step(4)
    formula = 0.001 + (LR - 0.001) * (1 + math.cos(math.pi * 4 / EPOCHS)) / 2
    assert optimizer.param_groups[0]["lr"] == pytest.approx(formula)


@pytest.mark.parametrize(("schedule", "theirs"), [("cosine", "cosine"), ("linear", "poly")])
@pytest.mark.parametrize("warmup", [0, 3])
def test_schedules_equal_timm_bitwise(schedule, theirs, warmup):
    """Runs of earlier versions go on with the schedule that they had."""
    ours, reference = make_optimizer(), make_optimizer()
    scheduler = build_scheduler(ours, schedule, epochs=13, lr_min=1e-3, warmup_epochs=warmup, warmup_lr=1e-4)
    timms, _ = create_scheduler_v2(
        reference,
        theirs,
        num_epochs=13 - warmup,
        decay_rate=1.0,
        min_lr=1e-3,
        warmup_lr=1e-4,
        warmup_epochs=warmup,
        warmup_prefix=True,
    )
    assert ours.param_groups[0]["lr"] == reference.param_groups[0]["lr"]
    later = build_scheduler(make_optimizer(lr=0.5), schedule, epochs=50)
    later.load_state_dict(timms.state_dict())
    assert later.state_dict() == scheduler.state_dict()
    for epoch in range(15):
        scheduler.step(epoch)
        timms.step(epoch)
        assert ours.param_groups[0]["lr"] == reference.param_groups[0]["lr"]


@pytest.mark.parametrize("opt", ["momentum", "sgd", "adam", "adamw"])
def test_optimizers_of_torch_are_those_that_timm_builds(opt):
    settings = {"opt": opt, "lr": 0.1, "weight_decay": 0.01, "momentum": 0.8}
    ours, theirs = (
        build([nn.Parameter(torch.zeros(2))], **settings) for build in (build_optimizer, create_optimizer_v2)
    )
    assert isinstance(ours, type(theirs))
    assert ours.defaults == theirs.defaults


@pytest.mark.parametrize(
    ("opt", "options", "reference"),
    [
        ("momentum", {}, lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, weight_decay=0.01)),
        ("sgd", {}, lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, weight_decay=0.01, nesterov=True)),
        (
            "adam",
            {"betas": (0.5, 0.999)},
            lambda p: torch.optim.Adam(p, 0.1, betas=(0.5, 0.999), weight_decay=0.01),
        ),
    ],
)
def test_optimizers_equal_torch(opt, options, reference):
    start = torch.linspace(-1, 1, 6).reshape(2, 3)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    pairs = [
        (ours, build_optimizer([ours], opt, lr=0.1, weight_decay=0.01, momentum=0.8, **options)),
        (theirs, reference([theirs])),
    ]
    for _ in range(3):
        for parameter, optimizer in pairs:
            optimizer.zero_grad()
            (parameter**3).sum().backward()
            optimizer.step()
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("opt", ["momentum", "adamw", "lamb"])
def test_biases_and_norms_decay_like_the_rest_or_not_at_all(opt):
    """Without gradients only the decay moves anything: no optimizer has another reason."""
    moved = []
    for decay_norms in (True, False):
        network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        for parameter in network.parameters():
            nn.init.ones_(parameter)
            parameter.grad = torch.zeros_like(parameter)
        groups = parameter_groups(network, 0.5, decay_norms=decay_norms)
        build_optimizer(groups, opt, lr=0.1, weight_decay=0.5).step()
        moved.append([name for name, p in network.named_parameters() if bool((p != 1).any())])
    assert moved == [["0.weight", "0.bias", "1.weight", "1.bias"], ["0.weight"]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build_optimizer([], "momentun", lr=0.1), "did you mean 'momentum'"),
        (lambda: build_optimizer([], "adam", lr=0.0), r"`lr` must .*, got 0.0 \(in build_opt"),
        (lambda: rates("cosin"), "must be 'cosine', .* or 'exponential', got 'cosin'"),
        (
            lambda: rates("exponential"),
            "lr_decay`.* and schedule=exponential need each other, got .*lr_decay=None",
        ),
        (lambda: rates("linear", lr_decay=0.9), "need each other, got .schedule=linear, lr_decay=0.9"),
        (lambda: rates("exponential", lr_decay=1.1), "`lr_decay` must .*, got 1.1"),
        (lambda: rates("linear_tail", lr_min=0.01), "schedule=linear_tail needs lr_min=0"),
        (
            lambda: rates("linear_tail", warmup_epochs=2),
            "more than 2 epochs of warm-up and 5 last ones, got 7",
        ),
        (
            lambda: rates("cosine", warmup_epochs=7),
            "warm-up epochs must be fewer than the 7 of the run, got 7",
        ),
        (lambda: rates("cosine", lr_min=0.1), "`lr_min` must be at most the learning rate 0.025, got 0.1"),
        (lambda: rates("cosine", warmup_epochs=1, warmup_lr=0.1), "`warmup_lr` must be at most the learning"),
    ],
)
def test_bad_input_raises(call, message):
    with pytest.raises(InputError, match=message):
        call()
