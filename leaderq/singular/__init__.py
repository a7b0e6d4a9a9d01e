""":class:`SingularUpdateQueue`: one thread applies requests in order, so its data need no lock, and
callers do not wait for one another.
"""

from __future__ import annotations

from leaderq.singular.queue import SingularUpdateQueue, log_failure
from leaderq.singular.request import RequestFuture
from leaderq.singular.writer import Stats

__all__ = ["RequestFuture", "SingularUpdateQueue", "Stats", "log_failure"]
