"""The command ``minitx``: what can go wrong ends in one sentence and an exit code.

0: every claim is supported. 1: one is not, or something failed. 2: wrong usage. 130: Ctrl-C.
The commands themselves are in ``app.py``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

OK, NOT_SUPPORTED, USAGE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; nothing is raised.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows ``minitx``; by default this process's own.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _say("Stopped.", INTERRUPTED)
    except BrokenPipeError:  # `minitx list | head`: whoever read us has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_SUPPORTED
    except SystemExit as stop:  # Rich's answer to a broken pipe
        return stop.code if isinstance(stop.code, int) else NOT_SUPPORTED
    except Exception as error:
        if debug:
            raise
        return _unexpected(error)


def _run(arguments: list[str]) -> int:
    import typer

    from minitx.cli.app import app
    from minitx.errors import MinitxError

    # Typer may carry its own copy of Click, so we ask its exceptions for their base.
    click_error: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
    try:
        code = app(arguments or ["--help"], prog_name="minitx", standalone_mode=False)
        return code if isinstance(code, int) else OK
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        return _say("Stopped.", INTERRUPTED)
    except MinitxError as error:
        return _say(str(error), USAGE)
    except click_error as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "minitx"
        words = error.format_message().strip().rstrip(".")
        return _say(f"{words}. See: {command} --help", USAGE)


def _say(sentence: str, code: int) -> int:
    print(f"minitx: {sentence}", file=sys.stderr)
    return code


def _unexpected(error: Exception) -> int:
    """A fault of ours: say so in a sentence, and keep the traceback where it can be found."""
    import traceback

    words = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="minitx-", suffix=".log", delete=False, encoding="utf-8"
        ) as file:
            traceback.print_exception(error, file=file)
        where = f"the traceback is in {file.name}"
    except OSError:
        where = "run it again with --debug to see where"
    return _say(f"Something went wrong ({words.rstrip(': ')}); {where}.", NOT_SUPPORTED)
