"""What architectures are worth and what they cost: evaluations, tables, rankings, fronts, limits."""

from nas_lightning.objectives.limits import Limits
from nas_lightning.objectives.short_training import ShortTrainingSettings
from nas_lightning.objectives.tables import GenotypeTable, TabularNasBench101, TabularNasBench201

__all__ = ["GenotypeTable", "Limits", "ShortTrainingSettings", "TabularNasBench101", "TabularNasBench201"]
