"""What the workers of a nemesis run: the user's career, recorded; and rude ones of our own.

A worker is ``leaderq run leaderq.testing.nemesis.careers:Recorded``. ``Recorded`` is made when it
is looked for: a subclass of the career that the environment names, which writes the history.
"""

from __future__ import annotations

import base64
import ctypes
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final

from leaderq.career import ILeaderCareer, LeaderCareer
from leaderq.clock import now_s
from leaderq.errors import ConfigurationError, Deposed
from leaderq.term import Term
from leaderq.testing.nemesis.history import (
    FOLDER,
    WORKER,
    What,
    effect,
    fenced_write,
    own_history,
)
from leaderq.zookeeper import SessionState

CAREER: Final = "NEMESIS_CAREER"
SEED: Final = "NEMESIS_SEED"
SPARED: Final = "NEMESIS_SPARED"
HELD: Final = ".held"
"""Behind the name of a wish to hold the GIL, while that lasts."""
CHILD_LIVES_S: Final = 60.0

_CHILD: Final = "from leaderq.testing.nemesis.careers import act_on; act_on({})"
_c = ctypes.CDLL(None)
_c.signal.restype = ctypes.c_void_p
_c.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]


class Manner(Enum):
    """How a rude leader behaves in one term, without a look at it."""

    HASTY = "units of a millisecond"
    LONG = "units that outlive the lease"
    DEAF = "units that outlive the lease, in a process that ignores SIGTERM"
    WRITING = "writes through the fence, without looking at the clock"
    BELIEVING = "a thread that outlives the term, and asks check() before each step"


class Rude(LeaderCareer):
    """A career of bad manners; the seed and the number of the term say which.

    In every other term it starts a process that acts on its own and ignores SIGTERM, now and then
    in a session of its own, and leaves it to others to end that. Where ``NEMESIS_SPARED`` is set,
    it returns soon from every unit, so that its own process lives long and shows what leaks; and
    it fails after a while, so that others lead as well.
    """

    name = "nemesis"

    def inaugurate(self, term: Term) -> None:
        self._dice = random.Random(f"{os.environ[SEED]}-{term.number}")
        short = [Manner.HASTY, Manner.WRITING, Manner.BELIEVING]
        self._manner = self._dice.choice(short if os.environ.get(SPARED) else list(Manner))
        if self._dice.random() < 0.5:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _CHILD.format(term.number)],
                stdin=subprocess.DEVNULL,
                start_new_session=self._dice.random() < 0.5,
            )
        self._fails_s = now_s() + self._dice.uniform(0.5, 2) if os.environ.get(SPARED) else None
        fenced_write(term)
        if self._manner is Manner.BELIEVING:
            threading.Thread(target=_believe, args=(term,), daemon=True).start()

    def execute(self, term: Term) -> None:
        if self._fails_s is not None and now_s() > self._fails_s:
            raise RuntimeError("the rude career fails now and then")
        if self._manner is Manner.HASTY:
            self._dice.choice((time.sleep, _compute))(0.001)
        elif self._manner is Manner.LONG:
            self._work_long(term)
        elif self._manner is Manner.DEAF:
            # SIG_IGN. Python's own handler may be set on the main thread only.
            before = _c.signal(signal.SIGTERM, 1)
            self._work_long(term)
            _c.signal(signal.SIGTERM, before)
        else:
            if self._manner is Manner.WRITING:
                fenced_write(term)
            effect(term)
            time.sleep(0.01)

    def _work_long(self, term: Term) -> None:
        # Steps, not a time: a unit that was frozen has as much to do as before.
        for step in range(int(self.session.timeout_s * self._dice.uniform(110, 160))):
            effect(term)
            if step % 20 == 0 and self._manner is Manner.LONG:
                fenced_write(term)
            time.sleep(0.01)


def _compute(seconds: float) -> None:
    until_s = now_s() + seconds
    while now_s() < until_s:
        pass


def act_on(term: int) -> None:
    """What the child of a rude leader does."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    until_s = now_s() + CHILD_LIVES_S
    while now_s() < until_s:
        effect(term)
        time.sleep(0.01)


def _believe(term: Term) -> None:
    history = own_history()
    while history is not None:
        at = now_s()
        try:
            term.check()
        except Deposed:
            return
        history.append(What.BELIEVED, at=at, pid=os.getpid(), term=term.number)
        time.sleep(0.01)


def recorded(career: type[ILeaderCareer]) -> type[ILeaderCareer]:
    """``career``, writing every stage to the history.

    It also holds the GIL when the nemesis asks for that, and tells it how its session is ended.
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
                told = {"id": credentials.session_id, "password": password}
                _replace(session_file(Path(os.environ[FOLDER]), self.candidate_id), told)
                history = own_history()
                if history is not None:
                    history.append(What.CONNECTED, who=self.candidate_id, pid=os.getpid())

    Recorded.__name__ = Recorded.__qualname__ = career.__name__
    return Recorded


def session_file(folder: Path, who: str) -> Path:
    """Where the worker of ``who`` says how its session is ended. The folder is its user's only."""
    return folder / f"session-{who}"


def gil_file(folder: Path, who: str) -> Path:
    """The wish that the worker of ``who`` holds the GIL in its next unit; contains for how long."""
    return folder / f"gil-{who}"


def _note(what: What, term: Term, **values: Any) -> None:
    history = own_history()
    if history is not None:
        history.append(what, who=term.candidate, pid=os.getpid(), term=term.number, **values)


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


def _replace(path: Path, content: dict[str, Any]) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(content))
    new.replace(path)


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
    os.environ[WORKER] = str(os.getpid())  # children inherit it, and their effects count as ours
    globals()[name] = recorded(career)
    return globals()[name]
