"""Reads careers and queues for operators, and acts on them. The command line, ``leaderq top`` and
the dashboard page show the values that this package returns; nothing here writes to a terminal.

``careers`` and ``queue_states`` read, and make the rows of tables; ``snapshot`` holds what both
read at one moment, for the page and for top; ``actions`` acts.
"""

from __future__ import annotations
