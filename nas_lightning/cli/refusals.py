"""What a library raises while a job's parts are built, as the one line that its user needs.

A value may be of its kind and finite, and still be one that Lightning, timm, torch or the system refuses.
They say so by these exceptions, which this project's own code raises only as `InputError`. Any other is a
mistake in the code where it was raised: in a library, which has been given what it does not expect, or in
ours or a user's, which keeps its traceback.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra.errors import InstantiationException
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from nas_lightning.errors import InputError, describe_system_error

_REFUSALS = (ValueError, OverflowError, MemoryError, OSError, NotImplementedError, MisconfigurationException)
_LIBRARIES = "site-packages"


@contextmanager
def refuse_in_a_line(where: str | None = None) -> Iterator[None]:
    """While something is built from settings: a library's refusal is an `InputError` that says where."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        cause = _cause(error)
        if isinstance(cause, InputError):
            raise cause from None
        if not is_refusal(cause) or describe_system_error(error):  # whose line says what goes on
            raise
        said = " ".join(str(cause).split()) or type(cause).__name__
        raise InputError(f"expected settings that can be built: {_shorten(said)}", where=where) from error


def is_refusal(error: BaseException) -> bool:
    """Whether an exception is how a library says no, and no mistake in our code or a user's.

    >>> import torch
    >>> def refusal(call):
    ...     try:
    ...         call()
    ...     except Exception as error:
    ...         return is_refusal(error)
    >>> refusal(lambda: torch.zeros(-1)), refusal(lambda: torch.optim.SGD(3)), refusal(lambda: {}["seed"])
    (True, True, False)
    """
    if isinstance(error, (*_REFUSALS, RuntimeError)):
        return not isinstance(error, RecursionError)
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and _LIBRARIES in Path(frames[-1].filename).parts


def _cause(error: BaseException) -> BaseException:
    """What a constructor raised, which Hydra wraps."""
    while isinstance(error, InstantiationException) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _shorten(text: str, most: int = 300) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
