"""The folder of a run: files, facts, and trackers.

Import loggers from their modules. They need Lightning, and the command line reads run folders before it loads
anything heavy.
"""

from nas_lightning.runs.facts import RunFacts, read_history
from nas_lightning.runs.folder import RunFolder

__all__ = ["RunFacts", "RunFolder", "read_history"]
