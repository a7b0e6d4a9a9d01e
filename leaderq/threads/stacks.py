"""Shows what a thread is doing, for messages which say that it hangs."""

from __future__ import annotations

import sys
from pathlib import Path
from traceback import extract_stack

_FRAMES = 8


def stack_of(thread: int | None) -> str:
    """The innermost calls of the thread with this ident, the outermost of them first; ``""`` if the
    thread has ended.
    """
    frame = sys._current_frames().get(thread or 0)
    frames = [] if frame is None else extract_stack(frame)[-_FRAMES:]
    return " > ".join(f"{one.name} ({Path(one.filename).name}:{one.lineno})" for one in frames)
