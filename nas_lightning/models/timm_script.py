"""timm's own scripts with derived networks among its models.

python -m nas_lightning.models.timm_script train.py --model nas_darts --model-kwargs genotype=darts_v2 …
torchrun --nproc-per-node 8 -m nas_lightning.models.timm_script train.py …
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from nas_lightning.errors import InputError


def main(arguments: Sequence[str] | None = None) -> None:
    """Register the models, then run the script as `python SCRIPT …` does."""
    script, *options = [*(sys.argv[1:] if arguments is None else arguments)] or [""]
    if not Path(script).is_file():
        said = "error: expected a script of timm's, such as its train.py, and what it takes"
        sys.exit(f"{said}, got {script!r}")
    import_module("nas_lightning.models.timm_models")
    sys.argv[:] = [script, *options]
    sys.path.insert(0, str(Path(script).absolute().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
