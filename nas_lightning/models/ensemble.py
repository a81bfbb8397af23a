"""Ensembles of trained networks: 1/n Σ_A softmax f_A(x) (Shu 2022, thesis, section 5.2).

>>> members = [torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)]
>>> ensemble, x = Ensemble(members).eval(), torch.randn(2, 4)
>>> mean = (members[0](x).softmax(dim=1) + members[1](x).softmax(dim=1)) / 2
>>> torch.allclose(ensemble.predict_proba(x), mean), torch.allclose(ensemble(x), mean.log(), atol=1e-6)
(True, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from nas_lightning.errors import InputError
from nas_lightning.metrics.recording import logits_of
from nas_lightning.models import file as model_file
from nas_lightning.models.file import Description
from nas_lightning.spaces.graph import DropPath
from nas_lightning.tasks import Link, link_of, task_of
from nas_lightning.utils.files import json_text, parse_json, read_text, write_whole
from nas_lightning.validation import Between0And1, at_least, at_most, checked

FILE_NAME = "ensemble.json"
_FORMAT = 1
_OF_LOADING = ("with_normalization", "runtime", "optimize")  # options of `load`, not of `describe`
Passes = Annotated[int, at_least(1), at_most(10_000)]  # a limit for numbers in files
_EXPECTED = f"The folder must have an {FILE_NAME}, such as outputs/train/<run>/ensemble"


def is_ensemble(run: str | Path) -> bool:
    """Return whether a folder is that of an ensemble or of its run."""
    return any((Path(run) / place / FILE_NAME).is_file() for place in (".", "ensemble"))


class Ensemble(nn.Module):
    """Networks whose predictions are averaged: class probabilities, or the predictions of their task.

    Use `load` for the folder of an ensemble, and `of_runs` for runs of `nas-train`.

    Args:
        members: networks from images to logits, (b, c, h, w) → (b, classes).
        descriptions: description of each member; needed by `save`.

    >>> ensemble = Ensemble([nn.Linear(4, 3), nn.Linear(4, 3)]).eval()
    >>> ensemble.predict_proba(torch.randn(2, 4)).sum(dim=1).round(decimals=4)
    tensor([1., 1.])
    """

    def __init__(self, members: Iterable[nn.Module], descriptions: Sequence[Description] = ()) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.descriptions = tuple(descriptions)
        if not len(self.members):
            raise InputError("There must be at least one member")
        _check_together(self.descriptions)
        self.task_name = self.descriptions[0].task if descriptions else task_of(self.members[0]).name

    @property
    def link(self) -> Link:
        """The map from outputs to predictions."""
        return link_of(self.task_name)

    def __len__(self) -> int:
        """Return how many predictions are averaged."""
        return len(self.members)

    def member_logits(self, x: Tensor) -> Tensor:
        """Map (b, c, h, w) to (members, b, classes)."""
        return torch.stack([logits_of(member(x)) for member in self.members])

    def member_probabilities(self, x: Tensor) -> Tensor:
        """Map (b, c, h, w) to (members, b, classes)."""
        return torch.stack([self.link.predict(logits) for logits in self.member_logits(x)])

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of the averaged prediction: (b, c, h, w) → (b, classes)."""
        return self.link.combine(self.member_logits(x))

    @torch.no_grad()
    def predict_proba(self, x: Tensor) -> Tensor:
        """Return the averaged predictions, such as class probabilities: (b, c, h, w) → (b, classes)."""
        return self.link.predict(self(x))

    # Files

    def save(self, folder: str | Path) -> Path:
        """Write a file for each member, then the file that names them."""
        if len(self.descriptions) != len(self.members):
            got = f"{len(self.descriptions)} of {len(self.members)}"
            raise InputError("An ensemble can be saved if each member has a description", got=got)
        folder = Path(folder)
        names = [f"member_{number}.safetensors" for number in range(1, len(self.members) + 1)]
        for name, member, about in zip(names, self.members, self.descriptions, strict=True):
            about.check(member)
            model_file.write(member, folder / name, about)
        content = {"format": _FORMAT, "members": names, "drop_path": self._passes()}
        return write_whole(folder / FILE_NAME, json_text(content, 2) + "\n")

    def _passes(self) -> dict[str, Any] | None:
        return None

    @classmethod
    def of_runs(cls, runs: Iterable[str | Path], **options: Any) -> Ensemble:
        """Return the ensemble of trained runs or model files, in eval mode.

        Args:
            runs: folders of runs, or files.
            **options: arguments of `nas_lightning.load`.
        """
        paths = list(runs)
        own = {name: value for name, value in options.items() if name not in _OF_LOADING}
        descriptions = [model_file.describe(path, **own) for path in paths]
        members = [model_file.load(path, **options) for path in paths]
        return Ensemble(members, descriptions).eval()

    @classmethod
    def load(cls, folder: str | Path, **options: Any) -> Ensemble:
        """Load an ensemble that `save` wrote, in eval mode, on the CPU.

        Members expect images normalized as in `descriptions`, or with `with_normalization=True` images with
        values from 0 to 1.

        Args:
            folder: the folder of an ensemble or of its run.
            **options: arguments of `nas_lightning.load`.
        """
        folder = Path(folder)
        folder = folder / "ensemble" if (folder / "ensemble" / FILE_NAME).is_file() else folder
        if not (folder / FILE_NAME).is_file():
            raise InputError(_EXPECTED, got=str(folder))
        data = parse_json(read_text(folder / FILE_NAME), where=folder / FILE_NAME)
        if not isinstance(data, dict) or data.get("format") != _FORMAT or not data.get("members"):
            raise InputError(f"The ensemble must have format {_FORMAT}", got=data, where=folder / FILE_NAME)
        names, passes = data["members"], data.get("drop_path")
        if not isinstance(names, list) or not all(isinstance(n, str) and Path(n).name == n for n in names):
            raise InputError("`members` must be names of files in the folder", got=names, where=folder)
        if passes is not None and (not isinstance(passes, dict) or set(passes) != {"rate", "passes"}):
            raise InputError(
                "`drop_path` must have `rate` and `passes`", got=passes, where=folder / FILE_NAME
            )
        ensemble = cls.of_runs([folder / name for name in names], **options)
        if passes is None:
            return ensemble
        return McDropPath(ensemble.members[0], ensemble.descriptions, **passes).eval()


class McDropPath(Ensemble):
    """The average of several passes of one network with drop path (thesis, table 5.2: MC DropPath).

    Monte Carlo dropout (Gal & Ghahramani 2016, arXiv:1506.02142) with drop path in place of dropout; all
    other layers are in eval mode. Uses torch's global random numbers.

    Args:
        network: a network with drop path.
        descriptions: a sequence with its description; needed by `save`.
        rate: probability with which an operation is dropped for an image.
        passes: number of averaged predictions.

    >>> from nas_lightning.spaces import NasBench201
    >>> space = NasBench201()
    >>> genotype = space.parse("|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|none~1|nor_conv_1x1~2|")
    >>> network = space.network(genotype, in_channels=1, num_classes=3, channels=4, cells=1)
    >>> ensemble = McDropPath(network, rate=0.2, passes=5).eval()
    >>> ensemble.member_probabilities(torch.randn(2, 1, 8, 8)).shape
    torch.Size([5, 2, 3])
    """

    @checked
    def __init__(
        self,
        network: nn.Module,
        descriptions: Sequence[Description] = (),
        *,
        rate: Between0And1 = 0.01,
        passes: Passes = 10,
    ) -> None:
        super().__init__([network], descriptions)
        self.rate, self.passes = rate, passes
        self._dropping = drop_paths(network)
        if not self._dropping:
            raise InputError("The network must have drop path", got=type(network).__name__)
        for module in self._dropping:
            module.drop_prob = rate
        self.train(self.training)

    def __len__(self) -> int:
        return self.passes

    def train(self, mode: bool = True) -> McDropPath:
        super().train(mode)
        for module in self._dropping:
            module.train()
        return self

    def member_logits(self, x: Tensor) -> Tensor:
        return torch.stack([logits_of(self.members[0](x)) for _ in range(self.passes)])

    def _passes(self) -> dict[str, Any]:
        return {"rate": self.rate, "passes": self.passes}


def drop_paths(network: nn.Module) -> list[Any]:
    """Return the modules that drop paths, ours and timm's."""
    import timm.layers  # a second to import

    kinds = (DropPath, timm.layers.DropPath)
    return [module for module in network.modules() if isinstance(module, kinds)]


def _check_together(descriptions: Sequence[Description]) -> None:
    """Raise unless all members take the same images and predict the same classes."""
    for number, other in enumerate(descriptions[1:], 2):
        for what in ("image", "classes", "mean", "std", "task"):
            if getattr(other, what) != getattr(descriptions[0], what):
                expected = f"All members must have the same {what}: {getattr(descriptions[0], what)}"
                raise InputError(expected, got=getattr(other, what), where=f"member {number}")
