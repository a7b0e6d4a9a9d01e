"""Careers of bad manners for the nemesis: in ``make test``, and for hours in ``make soak``."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time
from enum import Enum

from leaderq import Deposed, LeaderCareer, Term
from leaderq.base.clock import now_s
from leaderq.testing.nemesis import effect, fenced_write
from leaderq.testing.nemesis.careers import SEED, SPARED
from leaderq.testing.nemesis.history import What, own_history

CHILD_LIVES_S = 60.0
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
                [sys.executable, __file__, str(term.number)],
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


if __name__ == "__main__":
    act_on(int(sys.argv[1]))
