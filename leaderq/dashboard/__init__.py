"""A page to look at: careers, one career, queues, schedules; ``leaderq dashboard`` serves it.

*Reading* (``refresher``) makes a value of what ZooKeeper holds, the
:class:`~leaderq.dashboard.snapshot.PageSnapshot`; *drawing* (``screens``, ``plots``) makes HTML of
it, in pure functions; *serving* sends that to browsers. One thread reads, for all who look; while
nobody looks nothing is read. A refresh costs as many requests whatever a queue holds. What is shown
of careers and queues is what the command line shows (:mod:`leaderq.admin`).

Read-only, unless it is told otherwise; see :mod:`~leaderq.dashboard.access` for who may do what.
"""

from __future__ import annotations
