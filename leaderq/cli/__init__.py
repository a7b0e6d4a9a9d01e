"""The command line: one file for each noun. ``main`` is what the console script and ``python -m
leaderq`` run.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (:class:`leaderq.base.exits.ExitCode`). Never raises
    for a user's mistake.

    ``arguments`` are the words after the program's name; default: those of this process.
    """
    from leaderq.cli.entry import run  # click is imported only where a command line is run

    return run(arguments)
