"""Argument parsing and error handling of the commands that do not use Hydra."""

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
from nas_lightning.signals import EXIT_CODE, exit_on_sigterm
from nas_lightning.utils.files import check_writable

P = ParamSpec("P")


def place_to_write(text: str) -> Path:
    """Parse the path of an output file and check that it can be written, for `add_argument(type=…)`."""
    path = Path(text)
    try:
        if not path.name:
            raise ValueError("no name of a file")
        check_writable(path)
    except (OSError, ValueError) as error:  # ValueError also for an invalid file name
        reason = getattr(error, "strerror", None) or str(error)
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {reason}") from None
    return path


class FlagParser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises an `InputError` for invalid arguments.

    >>> FlagParser(prog="nas-table").parse_args(["-c"])
    Traceback (most recent call last):
    ...
    nas_lightning.errors.InputError: Invalid arguments: unrecognized arguments: -c. See `nas-table --help`.
    """

    def parse_args(  # type: ignore[override]  # only argparse's own namespace
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        for word in sys.argv[1:] if args is None else args:
            if "\0" in word:  # no file can have such a name
                raise InputError("Arguments must not contain null characters", got=word)
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"Invalid arguments: {message}. See `{self.prog} --help`.")


def add_own_parts(parser: argparse.ArgumentParser) -> None:
    """Add the flags for custom spaces, operations, and networks that a model's file may name."""
    add = parser.add_argument
    add("--config-dir", action="append", default=[], help="folder with the yamls of your spaces")
    add("--operation", action="append", default=[], help="your operation that the file may use")
    add("--module", action="append", default=[], help="your network that the file may use")


def own_parts(options: argparse.Namespace) -> dict[str, list[str]]:
    """Return these flags as keywords of `nas_lightning.load`; modules are found in the current folder."""
    if options.module or options.operation:
        sys.path.append(os.getcwd())
    return {"folders": options.config_dir, "operations": options.operation, "modules": options.module}


def accept_all_letters() -> None:
    """Escape characters that the encoding of the screen lacks, instead of raising an error."""
    for screen in (sys.stdout, sys.stderr):
        if isinstance(screen, io.TextIOWrapper):
            screen.reconfigure(errors="backslashreplace")


def command(main: Callable[P, None]) -> Callable[P, None]:
    """Decorate a command: errors of the user or the system are one line with exit code 1.

    After Ctrl-C or SIGTERM it prints that it was stopped, and leaves no incomplete file.
    """

    @functools.wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        accept_all_letters()
        try:
            with exit_on_sigterm():
                main(*args, **kwargs)
        except KeyboardInterrupt:
            _print_stopped()
            sys.exit(128 + signal.SIGINT)
        except SystemExit as end:
            if end.code == EXIT_CODE:
                _print_stopped()
            raise
        except BrokenPipeError:  # such as `… | head`
            sys.stdout = None  # at exit, Python would flush it into the closed pipe
            sys.exit(1)
        except InputError as error:
            sys.exit(f"error: {error}")
        except OSError as error:
            reason = error.strerror or str(error)
            sys.exit(f"error: {InputError(f'Cannot read or write: {reason}', where=error.filename)}")

    return run


def _print_stopped() -> None:
    print("\nStopped. The same command starts over.", file=sys.stderr)
