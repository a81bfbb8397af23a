"""The flags of the small commands beside the entry scripts, and what they answer to bad ones: one line."""

from __future__ import annotations

import argparse
import functools
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, ParamSpec

from nas_lightning.errors import InputError
from nas_lightning.signals import TOLD_TO_END, ends_when_told
from nas_lightning.utils.files import check_writable

P = ParamSpec("P")


def place_to_write(text: str) -> Path:
    """A path that a file can be written to, for `add_argument(type=…)`."""
    path = Path(text)
    try:
        if not path.name:
            raise ValueError("no name of a file")
        check_writable(path)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have, too
        reason = getattr(error, "strerror", None) or str(error)
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {reason}") from None
    return path


class FlagParser(argparse.ArgumentParser):
    """Raises for what is typed wrong, where argparse by itself prints pages.

    Args: those of argparse's.

    >>> FlagParser(prog="nas-table").parse_args(["--color"])
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: expected what `nas-table --help` says: unrecognized arguments: --color
    """

    def parse_args(  # type: ignore[override]  # no other namespace is asked for
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        for word in sys.argv[1:] if args is None else args:
            if "\0" in word:  # nothing that is called so can be named
                raise InputError("expected words without null characters", got=word, where="the command line")
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"expected what `{self.prog} --help` says: {message}")


def add_own_parts(parser: argparse.ArgumentParser) -> None:
    """The flags that say which parts of a user's own a model's file may name."""
    add = parser.add_argument
    add("--config-dir", action="append", default=[], help="your own folder of spaces")
    add("--operation", action="append", default=[], help="your own that the file may name")
    add("--module", action="append", default=[], help="your own network that the file may name")


def own_parts(options: argparse.Namespace) -> dict[str, list[str]]:
    """What `nas_lightning.load` is told of them; users have their own modules where they are."""
    if options.module or options.operation:
        sys.path.append(os.getcwd())
    return {"folders": options.config_dir, "operations": options.operation, "modules": options.module}


def accept_all_letters() -> None:
    """Let a screen or file that has few letters, as in old locales, get its own sign for those it lacks."""
    for screen in (sys.stdout, sys.stderr):
        if isinstance(screen, io.TextIOWrapper):
            screen.reconfigure(errors="backslashreplace")


def command(main: Callable[P, None]) -> Callable[P, None]:
    """A command that ends with one line and the exit code 1 for what its user or the system has got wrong.

    One that is told to end says so, and leaves no file half written.
    """

    @functools.wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        accept_all_letters()
        try:
            with ends_when_told():
                main(*args, **kwargs)
        except KeyboardInterrupt:
            _say_stopped()
            sys.exit(128 + signal.SIGINT)
        except SystemExit as end:
            if end.code == TOLD_TO_END:
                _say_stopped()
            raise
        except BrokenPipeError:  # whoever reads what is printed has read enough
            sys.stdout = None  # so that nothing is flushed into the closed pipe
            sys.exit(1)
        except InputError as error:
            sys.exit(f"error: {error}")
        except OSError as error:
            reason = error.strerror or str(error)
            refused = InputError(
                f"expected a place that can be read and written: {reason}", got=error.filename
            )
            sys.exit(f"error: {refused}")

    return run


def _say_stopped() -> None:
    print("\nStopped. The same command starts over.", file=sys.stderr)
