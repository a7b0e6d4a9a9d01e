"""What operators are shown of careers and queues, as values, whatever shows it: the command line,
the page. Nothing here writes to a terminal.
"""

from __future__ import annotations
