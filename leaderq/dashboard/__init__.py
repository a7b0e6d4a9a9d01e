"""A page to look at: careers, one career, queues, schedules; ``leaderq dashboard`` serves it.

*Reading* (``refresher``) makes a value of what ZooKeeper holds, the ``PageSnapshot``; *drawing*
(``screens``, ``plots``) makes HTML of it, in pure functions; *serving* sends that to browsers. What
is shown of careers and queues is what the command line shows (:mod:`leaderq.admin`). For who may do
what see :mod:`~leaderq.dashboard.access`.
"""

from __future__ import annotations
