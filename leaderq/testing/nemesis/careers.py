"""The career that the workers of a nemesis run: the user's career, recorded.

A worker is ``leaderq run leaderq.testing.nemesis.careers:Recorded``. ``Recorded`` is made when it
is imported: a subclass of the career that the environment names, which writes the history.
"""

from __future__ import annotations

import base64
import ctypes
import importlib
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from leaderq.base.arguments import require, wanted
from leaderq.career import ILeaderCareer, LeaderCareer
from leaderq.errors import ConfigurationError
from leaderq.term import Term
from leaderq.testing.nemesis.history import FOLDER, WORKER, What, effect, note
from leaderq.zookeeper import SessionState

CAREER: Final = "NEMESIS_CAREER"
SEED: Final = "NEMESIS_SEED"
HELD: Final = ".held"
"""The ending of a GIL file's name while the worker holds the GIL."""
SPARED: Final = "NEMESIS_SPARED"
"""Set for the candidate that is neither killed nor frozen; its units should be short."""


def recorded(career: type[ILeaderCareer]) -> type[ILeaderCareer]:
    """A subclass of ``career`` that writes every stage to the history.

    It also holds the GIL when the nemesis asks for that, and tells the nemesis how to end its
    session.
    """

    class Recorded(career):  # type: ignore[misc, valid-type]
        def prepare(self) -> None:
            self.session.add_listener(self._tell_session)
            self._tell_session(self.session.state)
            super().prepare()

        def inaugurate(self, term: Term) -> None:
            _note(What.INAUGURATED, term)
            super().inaugurate(term)

        def execute(self, term: Term) -> None:
            _note(What.UNIT, term)
            _hold_gil_if_told(term)
            super().execute(term)

        def handOver(self, term: Term) -> None:  # noqa: N802  (the user's name)
            super().handOver(term)
            _note(What.HANDED_OVER, term, why=term.reason.value if term.reason else "")

        def _tell_session(self, state: SessionState) -> None:
            credentials = self.session.credentials
            if state is SessionState.CONNECTED and credentials is not None:
                password = base64.b64encode(credentials.password).decode()
                told = session_file(Path(os.environ[FOLDER]), self.candidate_id)
                new = told.with_name(f"{told.name}.new")
                new.write_text(json.dumps({"id": credentials.session_id, "password": password}))
                new.replace(told)
                note(What.CONNECTED, who=self.candidate_id, pid=os.getpid())

    Recorded.__name__ = Recorded.__qualname__ = career.__name__
    return Recorded


def session_file(folder: Path, who: str) -> Path:
    """The file in which the worker of ``who`` says how to end its session; only its user may read
    it.
    """
    return folder / f"session-{who}"


def gil_file(folder: Path, who: str) -> Path:
    """The file that makes the worker of ``who`` hold the GIL in its next unit; it contains the
    number of seconds.
    """
    return folder / f"gil-{who}"


def _note(what: What, term: Term, **values: Any) -> None:
    note(what, who=term.candidate, pid=os.getpid(), term=term.number, **values)


def _hold_gil_if_told(term: Term) -> None:
    wish = gil_file(Path(os.environ[FOLDER]), term.candidate)
    if wish.exists():
        held = wish.with_suffix(HELD)
        with suppress(FileNotFoundError):  # taken back at this moment
            wish.rename(held)
            # A call through PyDLL keeps the GIL. No signal may cut it short.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            ctypes.PyDLL(None).usleep(int(float(held.read_text()) * 1e6))
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            held.unlink(missing_ok=True)
            effect(term)


def __getattr__(name: str) -> Any:
    if name != "Recorded":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    sys.path.insert(0, str(Path.cwd()))
    target = os.environ[CAREER]
    module, _, found = target.partition(":")
    try:
        career = getattr(importlib.import_module(module), found)
    except Exception as exc:  # the user's module runs here, and may raise anything
        why = f"{type(exc).__name__}: {exc}"
        what = f"career {target!r} cannot be imported in {Path.cwd()}: {why}"
        raise ConfigurationError(f"{what}; write package.module:Class") from exc
    is_fit = isinstance(career, type) and issubclass(career, LeaderCareer)
    require(wanted("career", target, is_fit, "a LeaderCareer; coroutines cannot be shaken yet"))
    os.environ[WORKER] = str(os.getpid())  # children inherit it, and their effects count as ours
    globals()[name] = recorded(career)
    return globals()[name]
