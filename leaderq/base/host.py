"""The name of this host and the number of this process, as leaderq tells them to others.

A simulation replaces the attributes of this module, because each simulated process has its own; so
they are looked up late, by attribute: ``host.pid()``, never ``from leaderq.base.host import pid``,
and never when a module is imported or as the default of a parameter. ruff refuses the originals
elsewhere in ``leaderq``, except where a process looks for itself in the system's list of processes.
"""

from __future__ import annotations

from os import getpid as pid
from socket import gethostname as name

__all__ = ["has_forked_from", "name", "pid"]


def has_forked_from(owner: int) -> bool:
    """Whether this process is a fork of the process ``owner``, which made the object in use."""
    return pid() != owner
