"""Jobs: a search, a training, an ensemble, a study. Each takes its parts and needs no command line.

They are for those who call them from code of their own: a notebook, an optimizer of settings, a cluster's
scheduler. Each writes its folder as the scripts do and returns the facts of the run.
"""

from nas_lightning.jobs.ensemble import ensemble
from nas_lightning.jobs.parts import Parts
from nas_lightning.jobs.search import search
from nas_lightning.jobs.study import study
from nas_lightning.jobs.train import train
from nas_lightning.runs.facts import RunFacts

__all__ = ["Parts", "RunFacts", "ensemble", "search", "study", "train"]
