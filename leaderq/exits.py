"""What the exit code of every ``leaderq`` process means."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes; scripts and supervisors may rely on them."""

    OK = 0
    FAILED = 1
    """The career failed, or the servers would not do what was asked."""
    USAGE = 2
    """What the user wrote cannot be used: an option, a class, an address, a file, credentials."""
    UNREACHABLE = 3
    """ZooKeeper or Kafka did not answer in time."""
    HANDOVER_MISSED = 4
    """The hand-over took longer than its budget."""
    FORCED = 130
    """The user would not wait: a second signal, or Ctrl-C where nothing can be handed over."""
