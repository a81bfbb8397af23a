"""Studies: questions about many architectures."""

from nas_lightning.studies.correlation import Correlation, CorrelationSettings
from nas_lightning.studies.defense import Defense
from nas_lightning.studies.devices import Devices
from nas_lightning.studies.ensembles import EnsembleComparison
from nas_lightning.studies.front import Front, front
from nas_lightning.studies.latency import Latency
from nas_lightning.studies.ranking import Picks, Ranking
from nas_lightning.studies.training import ShortTrainings
from nas_lightning.studies.transfer import Transfer

__all__ = [
    "Correlation",
    "CorrelationSettings",
    "Defense",
    "Devices",
    "EnsembleComparison",
    "Front",
    "Latency",
    "Picks",
    "Ranking",
    "ShortTrainings",
    "Transfer",
    "front",
]
