"""Monitors of searches and trainings."""

import pytest
import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from nas_lightning.callbacks import GenotypeHistory, NTKMonitor
from nas_lightning.callbacks.monitors import ConvergenceRate, SharedWeightRanking, first_pair
from nas_lightning.data import Fake, SearchData
from nas_lightning.errors import InputError
from nas_lightning.genotype import Genotype
from nas_lightning.metrics import ntk
from nas_lightning.metrics.recording import initialize
from nas_lightning.objectives.inherited import judge_genotype, kendall_tau
from nas_lightning.options import config_folder
from nas_lightning.runs.facts import read_history
from nas_lightning.spaces import Mlp, NasBench201, TwoLayer
from nas_lightning.spaces.topology import topology_metrics
from nas_lightning.strategies import Darts, PRDarts, RandomWS
from nas_lightning.strategies.one_shot.convergence_rate import convergence_rate

# The monitor logs the kernel, and the training does not notice.

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Trying to infer the `batch_size`"),
    pytest.mark.filterwarnings("ignore:.*returned `None`, this fit will run with no optimizer"),
]
SPACE = NasBench201()


@pytest.fixture
def images(generator):
    return torch.randn(6, 3, 8, 8, generator=generator), torch.tensor([0, 1, 2, 3, 4, 1])


class Training(pl.LightningModule):
    """A network with dropout and batch norm; its `derive` changes from epoch to epoch, as a search's."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 5)
        )
        self.seen: list[dict[str, float]] = []
        self.random = torch.empty(0)  # the state of the generator after the training

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    def training_step(self, batch: dict[str, tuple[Tensor, Tensor]], batch_idx: int) -> Tensor:
        x, y = batch["train"]
        return F.cross_entropy(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def derive(self) -> list[Genotype]:
        return [SPACE.sample(torch.Generator().manual_seed(self.current_epoch + 1))]


class Recorder(pl.Callback):
    """Keeps what was logged at the end of each epoch."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        pl_module.seen.append({name: float(value) for name, value in trainer.callback_metrics.items()})


def build(genotype: Genotype) -> nn.Module:
    return SPACE.network(genotype, in_channels=3, num_classes=5, channels=4, cells=1)


def train(*callbacks: pl.Callback, epochs: int = 2) -> Training:
    pl.seed_everything(0, verbose=False)
    module = Training()
    images = TensorDataset(torch.randn(16, 3, 8, 8), torch.arange(16) % 5)
    trainer = pl.Trainer(
        max_epochs=epochs,
        callbacks=[*callbacks, Recorder()],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(module, {"train": DataLoader(images, batch_size=8, shuffle=True)})
    module.random = torch.get_rng_state()
    return module


@pytest.mark.parametrize("how", [{}, {"attribute": "network"}, {"network": build}])
def test_training_is_the_same_with_and_without(how):
    plain, watched = train(), train(NTKMonitor(batch_size=6, **how))
    assert torch.equal(plain.random, watched.random)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
    assert {"ntk_sqrt_mean_diag", "ntk_condition", "ntk_lambda_min", "ntk_seconds"} <= set(watched.seen[-1])


def test_the_values_are_the_kernels(images):
    monitor = NTKMonitor(batch=images)
    module = train(monitor)
    kernel = ntk(module, images)
    assert module.seen[-1]["ntk_sqrt_mean_diag"] == pytest.approx((kernel.trace / 6) ** 0.5)
    assert module.seen[-1]["ntk_condition"] == pytest.approx(kernel.condition)
    assert module.seen[-1]["ntk_lambda_min"] == pytest.approx(kernel.lambda_min)
    assert module.seen[0]["ntk_sqrt_mean_diag"] != module.seen[-1]["ntk_sqrt_mean_diag"]


def test_the_derived_network_is_the_current_one(images):
    monitor = NTKMonitor(batch=images, network=build)
    module = train(monitor)
    for epoch, seen in enumerate(module.seen):
        network = build(SPACE.sample(torch.Generator().manual_seed(epoch + 1)))
        initialize(network, "lecun", torch.Generator().manual_seed(0))
        kernel = ntk(network, images)
        assert seen["ntk_sqrt_mean_diag"] == pytest.approx((kernel.trace / 6) ** 0.5)


def test_only_every_few_epochs():
    monitor = NTKMonitor(every_n_epochs=2, batch_size=4)
    seen = train(monitor, epochs=3).seen
    assert "ntk_sqrt_mean_diag" not in seen[0]
    assert seen[1]["ntk_sqrt_mean_diag"] > 0
    assert monitor.batch is not None
    assert len(monitor.batch[0]) == 4


def test_the_batch_is_part_of_the_state(images):
    resumed = NTKMonitor()
    resumed.load_state_dict(NTKMonitor(batch=images).state_dict())
    assert resumed.batch is not None
    assert all(map(torch.equal, resumed.batch, images))
    assert NTKMonitor().state_dict() == {}


def test_batches_of_many_shapes(images):
    x, _ = images
    for batch in (images, list(images), {"train": images, "valid": None}, [images, images]):
        assert first_pair(batch)[0] is x
    with pytest.raises(InputError, match=r"Batches must be \(inputs, labels\), .*, got 'Tensor'"):
        first_pair(x)


@pytest.mark.parametrize(
    "options",
    [{"every_n_epochs": 0}, {"batch_size": 1}, {"attribute": "network", "network": build}],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(InputError):
        NTKMonitor(**options)


def test_mappings_with_the_usual_names(images):
    x, y = images
    for names in (("image", "label"), ("img", "target"), ("pixel_values", "labels"), ("x", "y")):
        assert first_pair({"id": 3, **dict(zip(names, images, strict=True))})[0] is x
    assert first_pair((x, y, torch.ones(6)))[1] is y


def test_a_batch_and_inputs_as_functions(images):
    given = train(NTKMonitor(batch=lambda: images)).seen[-1]
    assert given["ntk_sqrt_mean_diag"] == train(NTKMonitor(batch=images)).seen[-1]["ntk_sqrt_mean_diag"]
    monitor = NTKMonitor(inputs=lambda batch: (batch["train"][0] * 0 + 1, batch["train"][1]))
    train(monitor)
    assert bool((monitor.batch[0] == 1).all())


@pytest.mark.parametrize(
    ("monitor", "reason"),
    [
        (NTKMonitor(attribute="network.0"), "ogits"),  # images come out
        (NTKMonitor(attribute="nowhere"), "no attribute 'nowhere'"),
        (NTKMonitor(batch=(torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.long))), "two samples"),
        (NTKMonitor(inputs=lambda batch: batch["test"]), "test"),
    ],
)
def test_what_cannot_be_measured_ends_no_training(monitor, reason):
    """It is said once in two epochs, and what is trained is what is trained without it."""
    plain = train()
    with pytest.warns(UserWarning, match="NTKMonitor measures nothing in this run") as caught:
        watched = train(monitor)
    said = [str(warning.message) for warning in caught if "NTKMonitor" in str(warning.message)]
    assert len(said) == 1
    assert reason in said[0]
    assert "ntk_sqrt_mean_diag" not in watched.seen[-1]
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


# The kernel's monitor beside trainings that nobody foresaw: they are what they are without it.

X, Y = torch.randn(16, 3, 6, 6, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 5


class Usual(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(64, 5)
        )

    def forward(self, x: Tensor):
        return self.net(x)

    def training_step(self, batch, batch_idx: int):
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Adversaries(Usual):
    """Two networks, two optimizers, by hand; forward makes images of noise."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.maker, self.judge = nn.Linear(4, 108), nn.Linear(108, 1)

    def forward(self, z: Tensor) -> Tensor:
        return self.maker(z)

    def training_step(self, batch, batch_idx: int) -> None:
        made, real = self(torch.randn(len(batch[0]), 4)), batch[0].flatten(1)
        losses = -self.judge(made).mean(), self.judge(made.detach()).mean() - self.judge(real).mean()
        for optimizer, loss in zip(self.optimizers(), losses, strict=True):
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward(loss, retain_graph=True)
            optimizer.step()
            self.untoggle_optimizer(optimizer)

    def configure_optimizers(self):
        return [torch.optim.SGD(part.parameters(), lr=0.01) for part in (self.maker, self.judge)], []


class ByHand(Usual):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx: int) -> None:
        self.optimizers().zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx))
        self.optimizers().step()


class Named(Usual):
    def forward(self, x: Tensor):
        return {"hidden": x, "logits": self.net(x)}

    def training_step(self, batch, batch_idx: int):
        return {"loss": F.cross_entropy(self(batch["image"])["logits"], batch["label"])}


class Several(Usual):
    def forward(self, x: Tensor):
        self.log("asked", 1.0)
        return self.net(x), x

    def training_step(self, batch, batch_idx: int):
        return F.cross_entropy(self(batch[0])[0], batch[1])


class OfLoss(Usual):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.net(x), y)

    def training_step(self, batch, batch_idx: int) -> Tensor:
        return self(*batch)


class ListOfDicts(Usual):
    def training_step(self, batch, batch_idx: int):
        x, y = (torch.stack([sample[name] for sample in batch]) for name in ("image", "label"))
        return F.cross_entropy(self(x), y)


class Alone(Usual):
    """Images without labels."""

    def training_step(self, batch, batch_idx: int):
        return self(batch).square().mean()


class Numbers(Usual):
    def training_step(self, batch, batch_idx: int):
        return F.mse_loss(self(batch[0])[:, 0], batch[1])


class Trainable(Usual):
    def forward(self, x: Tensor):
        assert self.training, "this one only trains"
        return self.net(x)


class Nothing(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx: int) -> None:
        pass

    def configure_optimizers(self) -> None:
        return None


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


class Made(Dataset):
    def __init__(self, form) -> None:
        self.form = form

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int):
        return self.form(index)


def named(index: int) -> dict[str, Tensor]:
    return {"image": X[index], "label": Y[index]}


PAIRS = TensorDataset(X, Y)
MEASURED = {
    "by hand": (ByHand, PAIRS, {}),
    "names": (Named, Made(named), {}),
    "a tuple, and a log": (Several, PAIRS, {}),
    "a stream": (Usual, Stream(), {}),
    "two bytes": (Usual, PAIRS, {"precision": "bf16-true"}),
    "mixed precision": (Usual, PAIRS, {"precision": "bf16-mixed"}),
    "accumulated": (Usual, PAIRS, {"accumulate_grad_batches": 2, "gradient_clip_val": 1.0}),
}
NOT_MEASURED = {
    "adversaries": (Adversaries, PAIRS, "attribute=… says what is measured"),
    "a loss": (OfLoss, PAIRS, "The network must take images alone, forward(x)"),
    "a list of dicts": (ListOfDicts, Made(named), "Batches must be (inputs, labels), or a mapping of them"),
    "images alone": (
        Alone,
        Made(lambda index: X[index]),
        "Batches must be (inputs, labels), or a mapping of them",
    ),
    "numbers": (Numbers, Made(lambda index: (X[index], X[index].mean())), "Class labels must be integers"),
    "training alone": (Trainable, PAIRS, "this one only trains"),
    "nothing to train": (Nothing, PAIRS, "parameters to train"),
}


def train_of_monitor_of_others(
    kind, samples, callbacks=(), **options
) -> tuple[pl.LightningModule, pl.Trainer]:
    pl.seed_everything(0, verbose=False)
    module = kind()
    off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", callbacks=list(callbacks), **dict.fromkeys(off, False), **options
    )
    shuffle = None if isinstance(samples, IterableDataset) else True
    collate = list if kind is ListOfDicts else None
    trainer.fit(module, DataLoader(samples, batch_size=8, shuffle=shuffle, collate_fn=collate))
    return module, trainer


def same_training(kind, samples, monitor, **options) -> pl.Trainer:
    plain, _ = train_of_monitor_of_others(kind, samples, **options)
    random = torch.get_rng_state()
    watched, trainer = train_of_monitor_of_others(kind, samples, [monitor], **options)
    assert torch.equal(random, torch.get_rng_state())
    assert trainer.current_epoch == 2
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
    return trainer


@pytest.mark.parametrize("name", MEASURED)
def test_a_kernel_of_any_module(name):
    kind, samples, options = MEASURED[name]
    trainer = same_training(kind, samples, NTKMonitor(batch_size=6), **options)
    assert float(trainer.callback_metrics["ntk_sqrt_mean_diag"]) > 0


@pytest.mark.parametrize("name", NOT_MEASURED)
def test_what_has_none_trains_to_its_end_and_is_told_once(name):
    kind, samples, reason = NOT_MEASURED[name]
    with pytest.warns(UserWarning, match="NTKMonitor measures nothing") as caught:
        trainer = same_training(kind, samples, NTKMonitor(batch_size=6))
    said = [str(warning.message) for warning in caught if "NTKMonitor" in str(warning.message)]
    assert len(said) == 1
    assert reason in said[0]
    assert "ntk_sqrt_mean_diag" not in trainer.callback_metrics


@pytest.mark.parametrize(
    ("name", "monitor"),
    [
        ("adversaries", NTKMonitor(attribute="judge", inputs=lambda b: (b[0].flatten(1), 0 * b[1]))),
        (
            "a list of dicts",
            NTKMonitor(
                inputs=lambda b: tuple(torch.stack(z) for z in zip(*map(dict.values, b), strict=True))
            ),
        ),
        ("numbers", NTKMonitor(output="sum")),
        ("training alone", NTKMonitor(attribute="net")),
    ],
)
def test_the_advice_helps(name, monitor):
    kind, samples, _ = NOT_MEASURED[name]
    assert float(same_training(kind, samples, monitor).callback_metrics["ntk_sqrt_mean_diag"]) > 0


# The callback logs what theorem 1 says of the strategy's scores, in every strategy that has some.


def fit(strategy, callback):
    data = SearchData(Fake(shape=(1, 8, 8), num_classes=3, train_size=16, test_size=4, batch_size=4))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        max_epochs=1, callbacks=[callback], accelerator="cpu", enable_checkpointing=False, **quiet
    )
    trainer.fit(strategy, data)
    return trainer.callback_metrics


@pytest.mark.parametrize("kind", [Darts, PRDarts])
def test_logged_numbers(kind):
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        callback = instantiate(compose("callbacks/convergence_rate").callbacks.convergence_rate)
    space = NasBench201()
    strategy = kind(space, space.supernet(in_channels=1, num_classes=3, channels=2, cells=1), arch_lr=0.3)
    logged = fit(strategy, callback)
    scores = strategy.scores()["cell"].clone()
    scores[:, 0] = 0.0  # none
    shares = scores / scores.sum(dim=1, keepdim=True)
    rate = convergence_rate(shares, space.groups["cell"])
    # equal shares: three edges of two convolutions each, behind 0, 1 and 2 edges with a skip
    equal = 0.5**2 * (1 + 0.25**2 + 0.25**4)
    assert float(logged["convergence_rate/cell"]) == pytest.approx(float(rate.value) / equal, rel=1e-5)
    assert float(logged["convergence_rate/skip_cell"]) == pytest.approx(float(shares[:3, 1].mean()))
    assert float(logged["convergence_rate/conv_cell"]) == pytest.approx(float(shares[3:, 2:4].sum(1).mean()))


def test_refused_before_the_search():
    space = NasBench201()
    supernet = space.supernet(in_channels=1, num_classes=3, channels=2, cells=1)
    data = SearchData(Fake(shape=(1, 8, 8), num_classes=3, train_size=16, test_size=4, batch_size=4))
    with pytest.raises(InputError, match="The strategy must score operations, got 'RandomWS'"):
        fit(RandomWS(space, supernet, data), ConvergenceRate())
    space = Mlp(layers=3)
    with pytest.raises(InputError, match="skips and convolutions on edges"):
        fit(Darts(space, space.supernet(in_channels=1, num_classes=3, width=4)), ConvergenceRate())


# The ranking callback says what a plain computation says, and refuses what it cannot rank.

REFUSED = "This callback needs a one-shot strategy with architecture parameters, fitted with SearchData"


@pytest.fixture
def data():
    return SearchData(Fake(shape=(1, 8, 8), num_classes=3, train_size=24, test_size=3, batch_size=4))


@pytest.fixture
def supernet():
    return NasBench201().supernet(in_channels=1, num_classes=3, channels=2, cells=1)


@pytest.fixture
def fit_of_ranking(data):
    def run(strategy, epochs, *callbacks, search_data=data, **options):
        quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
        quiet |= {"enable_model_summary": False, "accelerator": "cpu"}
        trainer = pl.Trainer(max_epochs=epochs, callbacks=list(callbacks), **quiet, **options)
        trainer.fit(strategy, search_data)
        return trainer

    return run


@pytest.mark.parametrize("precision", ["32-true", "64-true"])
def test_logs_the_agreement_of_both_orders(fit_of_ranking, data, supernet, precision):
    space = NasBench201()
    darts = Darts(space, supernet, arch_lr=0.1)
    ranking = SharedWeightRanking(every_n_epochs=2, architectures=12, valid_batches=1, seed=5)
    logged = fit_of_ranking(darts, 2, ranking, precision=precision).callback_metrics
    draw = torch.Generator().manual_seed(5)
    drawn = [space.sample(draw) for _ in range(12)]
    shares, group = darts.scores()["cell"].log(), space.groups["cell"]
    likelihood = [
        sum(float(shares[group.edges.index((s, t)), group.column(op)]) for op, s, t in genotype["cell"].edges)
        for genotype in drawn
    ]
    dtype = next(supernet.parameters()).dtype
    batches = [(x.to(dtype), y) for x, y in data.valid_batches(1)]
    losses = [judge_genotype(space, supernet, genotype, batches).loss for genotype in drawn]
    expected = stats.kendalltau(likelihood, [-loss for loss in losses]).statistic
    assert float(logged["ranking/kendall_tau"]) == pytest.approx(expected, abs=1e-6)
    assert float(logged["ranking/seconds"]) > 0


@pytest.mark.parametrize(
    ("exchanged", "tau"),
    [(("relu", "leaky_relu"), 0.93), (("tanh", "sigmoid"), 0.81), (("swish", "tanh"), 0.53)],
)
def test_what_one_exchange_of_two_activations_takes(exchanged, tau):
    """Twenty draws of five activations repeat them, so that it depends on which two change places."""
    space, draw = TwoLayer(), torch.Generator().manual_seed(0)
    drawn = [op for _ in range(20) for op, _, _ in space.sample(draw)["layers"].edges]
    order = ["relu", "leaky_relu", "swish", "tanh", "sigmoid"]
    other = dict(zip(exchanged, reversed(exchanged), strict=True))
    found = [-order.index(op) for op in drawn], [order.index(other.get(op, op)) for op in drawn]
    assert kendall_tau(*found) == pytest.approx(tau, abs=0.005)


def test_only_every_so_often(fit_of_ranking, supernet):
    darts = Darts(NasBench201(), supernet)
    ranking = SharedWeightRanking(every_n_epochs=3, architectures=3, valid_batches=1)
    assert "ranking/kendall_tau" not in fit_of_ranking(darts, 2, ranking).callback_metrics
    assert (
        "ranking/kendall_tau" in fit_of_ranking(Darts(NasBench201(), supernet), 3, ranking).callback_metrics
    )


def test_it_changes_nothing(fit_of_ranking):
    ends = []
    for callbacks in ([], [SharedWeightRanking(every_n_epochs=1, architectures=4, valid_batches=1)]):
        torch.manual_seed(2)
        space = NasBench201()
        darts = Darts(space, space.supernet(in_channels=1, num_classes=3, channels=2, cells=1))
        fit_of_ranking(darts, 2, *callbacks)
        ends.append(darts.state_dict())
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


def test_what_it_cannot_rank_is_said_before_the_search(fit_of_ranking, data, supernet, refusal):
    strategy = RandomWS(NasBench201(), supernet, data)
    before = supernet.head.weight.detach().clone()
    message = refusal(lambda: fit_of_ranking(strategy, 1, SharedWeightRanking()))
    assert message.startswith(f"{REFUSED}, got 'RandomWS'")
    assert torch.equal(supernet.head.weight, before)


def test_other_data_is_refused(fit_of_ranking, data, supernet, refusal):
    class Other(pl.LightningDataModule):
        def train_dataloader(self):
            return data.train_dataloader()

    darts = Darts(NasBench201(), supernet)
    message = refusal(lambda: fit_of_ranking(darts, 1, SharedWeightRanking(), search_data=Other()))
    assert message.startswith(
        "This callback needs a one-shot strategy with architecture parameters, fitted with SearchData"
    )


# The history's file and the figures at the end.


def test_figures_at_the_end(tmp_path, tiny, trainer):
    fit = trainer(tmp_path / "run", 1, enable_checkpointing=True)
    fit.callbacks = [GenotypeHistory(tmp_path / "run")]
    fit.fit(tiny())
    made = sorted(path.name for path in (tmp_path / "run" / "figures").iterdir())
    assert made == [f"{name}.{end}" for name in ("genotype", "weights_cell") for end in ("pdf", "png", "svg")]


def test_depth_width_and_skips_of_each_epoch_are_logged(tmp_path, tiny, trainer):
    logged = []

    class Recorder(pl.Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            logged.append(dict(trainer.callback_metrics))

    fit = trainer(tmp_path / "run", 3, enable_checkpointing=True)
    fit.callbacks = [GenotypeHistory(tmp_path / "run", figures=False), Recorder()]
    fit.fit(tiny())
    logged.append(dict(fit.callback_metrics))
    for entry, metrics in zip(read_history(tmp_path / "run" / "history.jsonl"), logged[1:], strict=True):
        expected = topology_metrics(Genotype.from_dict(entry["genotypes"][0]))
        assert {name: float(metrics[name]) for name in expected} == pytest.approx(expected)
        assert set(expected) == {"depth/cell", "width/cell", "skips/cell"}


def test_a_line_cut_off_by_a_kill_does_not_count(tmp_path):
    file = tmp_path / "history.jsonl"
    file.write_text('{"epoch": 0, "genotypes": [], "groups": {}}\n{"epoch": 1, "geno')
    assert [entry["epoch"] for entry in read_history(file)] == [0]


@pytest.mark.parametrize("line", ["{", "[]", '{"genotypes": []}', '{"epoch": null}'])
def test_a_broken_line_is_named(tmp_path, refusal, line):
    file = tmp_path / "history.jsonl"
    file.write_text(f'{{"epoch": 0}}\n{line}\n')
    message = refusal(read_history, file)
    assert message.startswith("Each line must be an epoch in JSON")
    assert message.endswith("history.jsonl:2)")
