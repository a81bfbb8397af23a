"""Trained networks on the Hugging Face Hub: a repository has the model file and a model card.

push_to_hub("outputs/train/2026-11-20_10-00-00", "me/my-cell")
network = from_pretrained("me/my-cell")
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from torch import nn

from nas_lightning.errors import InputError
from nas_lightning.models.file import FILE_NAME, Description, check_file, describe, file_of, load
from nas_lightning.utils.files import write_whole

CARD = "README.md"


def save_pretrained(model: str | Path, folder: str | Path, **custom: Any) -> Path:
    """Write the folder that `push_to_hub` uploads: the model file and its card.

    Args:
        model: the folder of a training run, or a model file.
        folder: where to write; created if missing.
        **custom: custom classes, as in `load`.

    Returns:
        The folder.
    """
    check_file(model, **custom)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file_of(model), folder / FILE_NAME)
    write_whole(folder / CARD, model_card(describe(model, **custom)))
    return folder


def push_to_hub(model: str | Path, repo_id: str, *, private: bool = False, **custom: Any) -> str:
    """Upload a trained network to the Hugging Face Hub; log in with `hf auth login` first.

    Args:
        model: the folder of a training run, or a model file.
        repo_id: `user/name` of the repository, which is created if there is none.
        private: create the repository as a private one.
        **custom: custom classes, as in `load`.

    Returns:
        The address of the upload.
    """
    from tempfile import TemporaryDirectory

    from huggingface_hub import HfApi

    with TemporaryDirectory() as folder:
        save_pretrained(model, folder, **custom)
        api = HfApi()
        api.create_repo(repo_id, private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=repo_id, folder_path=folder))


def from_pretrained(source: str | Path, *, revision: str | None = None, **options: Any) -> nn.Module:
    """Load a network from the Hugging Face Hub, or from a folder that `save_pretrained` wrote.

    Args:
        source: `user/name` of a repository, or a folder.
        revision: a branch, tag, or commit of the repository. Default: its main branch.
        **options: as in `load`, such as `with_normalization=True` or custom classes.

    Returns:
        The network in eval mode, on the CPU, which maps (b, c, h, w) to logits (b, classes).
    """
    if Path(source).is_dir():
        return load(source, **options)
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, RepositoryNotFoundError

    try:
        return load(hf_hub_download(str(source), FILE_NAME, revision=revision), **options)
    except (EntryNotFoundError, HFValidationError, RepositoryNotFoundError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"`{source}` must be a folder or a repository with a {FILE_NAME}: {reason}"
        ) from None


def model_card(about: Description) -> str:
    """Return the model card: metadata for the Hub, and how to use the network."""
    channels, height, width = about.image
    genotype = "\n".join(f"    {line}" for line in str(about.genotype).splitlines())
    return f"""---
library_name: nas_lightning
tags: [neural-architecture-search, {about.space}]
---

# A network found by neural architecture search

| | |
|---|---|
| search space | `{about.space}` |
| images | {channels} × {height} × {width}, values from 0 to 1 |
| mean, standard deviation | {_numbers(about.mean)}; {_numbers(about.std)} |
| classes | {len(about.classes)}: {_classes(about)} |

```python
from nas_lightning.models.hub import from_pretrained

network = from_pretrained("user/name", with_normalization=True)
logits = network(images)  # ({channels}, {height}, {width}) each, values from 0 to 1
```

Its architecture:

{genotype}
"""


def _classes(about: Description, most: int = 10) -> str:
    names = [" ".join(name.split()) for name in about.classes[:most]]
    return ", ".join([*names, "…"] if len(about.classes) > most else names)


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
