"""Trained networks: files, exports, ensembles, and predictions."""

from nas_lightning.models.attacks import AutoAttack, CarliniWagner, Fgsm, Pgd
from nas_lightning.models.ensemble import Ensemble, McDropPath
from nas_lightning.models.ensemble_plans import (
    DropPathPasses,
    EveryArchitecture,
    RandomPool,
    SeveralSeeds,
    TrainedRuns,
)
from nas_lightning.models.evaluation import evaluate
from nas_lightning.models.hub import from_pretrained, push_to_hub, save_pretrained
from nas_lightning.models.prediction import Predictions, Predictor

__all__ = [
    "AutoAttack",
    "CarliniWagner",
    "DropPathPasses",
    "Ensemble",
    "EveryArchitecture",
    "Fgsm",
    "McDropPath",
    "Pgd",
    "Predictions",
    "Predictor",
    "RandomPool",
    "SeveralSeeds",
    "TrainedRuns",
    "evaluate",
    "from_pretrained",
    "push_to_hub",
    "save_pretrained",
]
