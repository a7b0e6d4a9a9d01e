"""One thread that applies requests in order, so that what it owns needs no lock, and nobody who submits waits for another.

:class:`SingularUpdateQueue` is all that most need. ``queue`` is its face; ``gate`` the way in when it is full;
``writer`` and ``batches`` the thread; ``ticket`` the futures; ``account`` the figures; ``waits`` finds waits that would
never end; ``processes`` heeds forks and the interpreter's exit.
"""

from __future__ import annotations

from leaderq.singular.account import Stats
from leaderq.singular.options import log_failure
from leaderq.singular.queue import SingularUpdateQueue
from leaderq.singular.ticket import Ticket

__all__ = ["SingularUpdateQueue", "Stats", "Ticket", "log_failure"]
