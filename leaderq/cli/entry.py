"""Runs a command line, and turns every error into one sentence on standard error and an exit code.
No other module does that.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile

import click

from leaderq.base.exits import ExitCode
from leaderq.cli.signals import StoppedEarly
from leaderq.cli.verbs import leaderq
from leaderq.errors import (
    AccessRefused,
    CommandFailed,
    ConfigurationError,
    ConnectionLost,
    LeaderqError,
    MissingPiece,
    ServersUnreachable,
    SessionExpired,
    UnknownTopic,
    told,
)

_UNREACHABLE = (ServersUnreachable, ConnectionLost, SessionExpired)
_USAGE = (ConfigurationError, AccessRefused, MissingPiece, UnknownTopic)
_COMPLETION = "_LEADERQ_COMPLETE"
_OFF = frozenset({"", "0", "false", "no", "off"})


def run(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    _fill_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a name may not fit into its encoding
    code = _contained(given)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # Nobody reads it, or its disk is full. Nothing may be flushed to it again, not even at
            # exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return int(code)


def _fill_closed_streams() -> None:
    """Open the null device for each standard stream that is closed. Otherwise the next socket would
    get the number of that stream, and what is printed would go there. ``sys.stdin`` stays ``None``.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)
            if name != "stdin":
                setattr(sys, name, open(null, "w", closefd=False))  # noqa: SIM115


def _contained(arguments: list[str]) -> int:
    try:
        result = _invoked(arguments)
        sys.stdout.flush()
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except StoppedEarly:
        return ExitCode.OK
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.FORCED
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        said = error.format_message().rstrip(".")
        _complain(said, f"see {context.command_path} --help" if context else "")
        return ExitCode.USAGE
    except BrokenPipeError:
        return ExitCode.OK  # the reader has seen enough: ``leaderq ... | head``
    except LeaderqError as error:
        _trace(error, arguments)
        for problem in error.problems if isinstance(error, ConfigurationError) else (str(error),):
            _complain(problem)
        return exit_code(error)
    except OSError as error:  # such as a disk that is full, where the output goes
        _trace(error, arguments)
        what = f"the operating system refused what leaderq asked for: {told(error)}"
        _complain(what, "correct that, or run it again with --debug to see where")
        return ExitCode.FAILED
    except Exception as error:  # noqa: BLE001  (a fault of ours: said in one sentence, shown whole with --debug)
        _trace(error, arguments)
        _complain(
            f"unexpected {told(error)}",
            "this is a fault in leaderq; run it again with --debug to see where",
        )
        return ExitCode.FAILED
    return int(result) if isinstance(result, int) else ExitCode.OK


def _invoked(arguments: list[str]) -> object:
    # Not through click's main(): it would swallow a closed pipe and Ctrl-C in its own way.
    if instruction := os.environ.get(_COMPLETION):
        from click.shell_completion import shell_complete

        return shell_complete(leaderq, {}, "leaderq", _COMPLETION, instruction)
    with leaderq.make_context("leaderq", list(arguments), obj=tuple(arguments)) as context:
        return leaderq.invoke(context)


def _complain(sentence: str, remedy: str = "") -> None:
    from leaderq.admin.text import harmless_lines  # not needed for --help

    comma = " " if sentence.endswith("?") else "; "
    text = f"leaderq: error: {sentence}{comma + remedy if remedy else ''}"
    with suppress(OSError):  # nobody reads it; the exit code says it, too
        click.echo(harmless_lines(text), err=True)


def _trace(error: Exception, arguments: list[str]) -> None:
    """Show where an error came from, if ``--debug`` or ``LEADERQ_DEBUG`` asks for it. The error may
    have come before the options were parsed.
    """
    own = takewhile(lambda each: each != "--", arguments)  # after it: options of a command
    if "--debug" in own or os.environ.get("LEADERQ_DEBUG", "").lower() not in _OFF:
        with suppress(OSError):  # nobody reads it
            traceback.print_exception(error)


def exit_code(error: LeaderqError) -> int:
    """The exit code of a command that ends with ``error``."""
    if isinstance(error, CommandFailed):
        return error.exit_code
    if isinstance(error, _UNREACHABLE):
        return ExitCode.UNREACHABLE
    return ExitCode.USAGE if isinstance(error, _USAGE) else ExitCode.FAILED
