"""What the exit codes of ``leaderq`` processes mean."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes; scripts and supervisors may rely on them."""

    OK = 0
    FAILED = 1
    """The career failed, or the servers refused a request."""
    USAGE = 2
    """An option, a class, an address, a file or credentials cannot be used."""
    UNREACHABLE = 3
    """ZooKeeper or Kafka did not answer in time."""
    HANDOVER_MISSED = 4
    """The hand-over took longer than its budget."""
    NO_LEADER = 5
    """Nobody leads the career that ``leaderq status`` was asked about."""
    FORCED = 130
    """A second signal, or Ctrl-C where there is nothing to hand over."""
