"""A page to look at: careers, one career, queues, schedules; ``leaderq dashboard`` serves it.

The ``refresher`` reads a ``PageSnapshot`` (:mod:`leaderq.admin`) for all who look; *drawing*
(``screens``, ``plots``) makes HTML of it, in pure functions; *serving* sends that to browsers. What
is shown is what the command line and ``leaderq top`` show. For who may do what see
:mod:`~leaderq.dashboard.access`.
"""

from __future__ import annotations
