"""Studies: how well architectures are ranked, timed, attacked, and combined."""

from nas_lightning.studies.base import Study
from nas_lightning.studies.correlation import Correlation, CorrelationSettings
from nas_lightning.studies.defense import Defense
from nas_lightning.studies.devices import Devices
from nas_lightning.studies.ensembles import EnsembleComparison
from nas_lightning.studies.front import Front
from nas_lightning.studies.latency import Latency
from nas_lightning.studies.ranking import Picks, Ranking
from nas_lightning.studies.scoring import EstimatedStudy, ParallelStudy, ScoredStudy
from nas_lightning.studies.training import ShortTrainings
from nas_lightning.studies.transfer import Transfer

__all__ = [
    "Correlation",
    "CorrelationSettings",
    "Defense",
    "Devices",
    "EnsembleComparison",
    "EstimatedStudy",
    "Front",
    "Latency",
    "ParallelStudy",
    "Picks",
    "Ranking",
    "ScoredStudy",
    "ShortTrainings",
    "Study",
    "Transfer",
]
