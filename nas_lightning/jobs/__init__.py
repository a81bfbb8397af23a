"""The Python API of the commands: functions that run a search, a training, an ensemble, or a study.

Use them in notebooks, hyperparameter optimizers, and schedulers. Each takes its parts as objects, writes the
same folder as the command, and returns the facts of the run.
"""

from nas_lightning.jobs.ensemble import ensemble
from nas_lightning.jobs.parts import Parts
from nas_lightning.jobs.search import search
from nas_lightning.jobs.study import study
from nas_lightning.jobs.train import train
from nas_lightning.runs.facts import RunFacts

__all__ = ["Parts", "RunFacts", "ensemble", "search", "study", "train"]
