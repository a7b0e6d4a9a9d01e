"""The dashboard page: careers, one career, queues, schedules. ``leaderq dashboard`` serves it.

``refresher`` reads a ``PageSnapshot`` (:mod:`leaderq.admin`) for all viewers; ``screens`` and
``plots`` draw it as HTML, in pure functions; ``serving`` sends that to browsers. The page shows
what the command line and ``leaderq top`` show. :mod:`~leaderq.dashboard.access` decides who may do
what.
"""

from __future__ import annotations
