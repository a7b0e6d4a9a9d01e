"""What operators are shown of careers and queues, and what they may do, as values, whatever shows
it: the command line, ``leaderq top``, the page. Nothing here writes to a terminal.

``careers`` and ``queue_states`` read, and make rows of it; ``snapshot`` is all of it at one moment,
for the page and top; ``actions`` acts.
"""

from __future__ import annotations
