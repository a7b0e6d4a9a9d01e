"""Ctrl-C at a step that the test chooses, instead of wherever it happens to strike."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def interrupted_at(step: int, call: Callable[[], object], *files: str, before: Callable[[], object] | None = None) -> bool:
    """Call ``call`` and raise ``KeyboardInterrupt`` when, for the ``step``-th time, a function of one of these files (ends of
    their paths) is entered or left: where Python itself looks for signals. ``before`` is called just before that. Gives
    whether the call came so far."""
    left = step

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(files):
            return None
        if event in ("call", "return"):
            left -= 1
            if left == 0:
                sys.settrace(None)
                if before is not None:
                    before()
                raise KeyboardInterrupt
        return trace

    found = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        if left > 0:
            raise
    finally:
        sys.settrace(found)
    return left <= 0
