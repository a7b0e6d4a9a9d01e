"""Ctrl-C at a step that the test chooses, instead of wherever it happens to strike."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from leaderq.testing.waiting import patience

HANGS_S = 60.0


def interrupted_at(step: int, call: Callable[[], object], *files: str, before: Callable[[], object] | None = None) -> bool:
    """Call ``call`` and raise ``KeyboardInterrupt`` when, for the ``step``-th time, a function of one of these files (ends of
    their paths) is entered or left: where Python itself looks for signals. ``before`` is called just before that. Gives
    whether the call came so far.

    On a thread of its own, since the test's is watched over by signals, whose handlers must not be traced.
    """
    traced = _Traced(step, call, files, before)
    thread = threading.Thread(target=traced.run, daemon=True)
    thread.start()
    thread.join(HANGS_S * patience())
    assert not thread.is_alive(), f"interrupted at step {step}, the call does not come back"
    if traced.error is not None:
        raise traced.error
    return traced.left <= 0


class _Traced:
    def __init__(self, step: int, call: Callable[[], object], files: tuple[str, ...], before: Callable[[], object] | None):
        self.left = step
        self.error: BaseException | None = None
        self._call = call
        self._files = files
        self._before = before

    def run(self) -> None:
        sys.settrace(self._trace)
        try:
            self._call()
        except KeyboardInterrupt as exc:
            if self.left > 0:
                self.error = exc
        except BaseException as exc:
            self.error = exc
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(self._files):
            return None
        if event in ("call", "return"):
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                if self._before is not None:
                    self._before()
                raise KeyboardInterrupt
        return self._trace
