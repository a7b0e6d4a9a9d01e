"""Ctrl-C at a step that the test chooses, instead of wherever it happens to strike."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from leaderq.testing.waiting import patience

HANGS_S = 60.0


def interrupted_at(step: int, call: Callable[[], object], *files: str, before: Callable[[], object] | None = None) -> bool:
    """Call ``call`` and raise ``KeyboardInterrupt`` when, for the ``step``-th time, a function of one of these files (ends of
    their paths) is entered or left: where Python itself looks for signals. ``before`` is called just before that. Gives
    whether the call came so far.

    On a thread of its own, so that one that does not come back can be told. The functions are wrapped meanwhile: with
    ``sys.settrace``, which would be the obvious means, CPython 3.11 sometimes runs in circles once a trace function has raised.
    """
    interrupter = _Interrupter(step, call, before)
    wrapped = list(_functions(files))
    for owner, name, found in wrapped:
        setattr(owner, name, interrupter.wrapping(found))
    thread = threading.Thread(target=interrupter.run, daemon=True)
    try:
        thread.start()
        thread.join(HANGS_S * patience())
    finally:
        for owner, name, found in wrapped:
            setattr(owner, name, found)
    assert not thread.is_alive(), f"interrupted at step {step}, the call does not come back"
    if interrupter.error is not None:
        raise interrupter.error
    return interrupter.left <= 0


def _functions(files: tuple[str, ...]) -> Iterator[tuple[Any, str, FunctionType]]:
    for module in list(sys.modules.values()):
        if not (getattr(module, "__file__", None) or "").endswith(files):
            continue
        kinds = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
        for owner in (module, *kinds):
            for name, found in list(vars(owner).items()):
                if isinstance(found, FunctionType) and found.__module__ == module.__name__:
                    yield owner, name, found


class _Interrupter:
    def __init__(self, step: int, call: Callable[[], object], before: Callable[[], object] | None) -> None:
        self.left = step
        self.error: BaseException | None = None
        self._call = call
        self._before = before
        self._thread = 0

    def run(self) -> None:
        self._thread = threading.get_ident()
        try:
            self._call()
        except KeyboardInterrupt as exc:
            if self.left > 0:
                self.error = exc
        except BaseException as exc:
            self.error = exc
        finally:
            self._thread = 0

    def wrapping(self, function: FunctionType) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*words: Any, **named: Any) -> Any:
            self._stepped()
            result = function(*words, **named)
            self._stepped()
            return result

        return wrapped

    def _stepped(self) -> None:
        if threading.get_ident() != self._thread:
            return
        self.left -= 1
        if self.left == 0:
            if self._before is not None:
                self._before()
            raise KeyboardInterrupt
