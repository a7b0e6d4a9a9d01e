"""The schedule of faults, how each is done and healed, and the run of rounds."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from leaderq.clock import now_s
from leaderq.errors import LeaderqError, ServerFailed
from leaderq.testing.nemesis.careers import HELD, gil_file, session_file
from leaderq.testing.nemesis.checkers import Bounds, NemesisReport, check, leads
from leaderq.testing.nemesis.cluster import (
    LASTS,
    NAMES,
    Cluster,
    NemesisOptions,
    held_within,
    own_ensemble,
    sent,
)
from leaderq.testing.nemesis.history import Kind, What, read
from leaderq.testing.server import all_at_once
from leaderq.testing.waiting import eventually, patience
from leaderq.testing.zookeeper_server import ZooKeeperEnsemble, ZooKeeperServer
from leaderq.zookeeper import Credentials, end_session

_PROCESS: Final = frozenset(
    {
        Kind.KILL_WORKER,
        Kind.KILL_GUARDIAN,
        Kind.KILL_BOTH,
        Kind.FREEZE_WORKER,
        Kind.FREEZE_TREE,
        Kind.FREEZE_GUARDIAN,
        Kind.FREEZE_BOTH,
        Kind.HOLD_GIL,
    }
)
_SERVERS: Final = frozenset(
    {Kind.KILL_SERVER, Kind.FREEZE_SERVER, Kind.RESTART_SERVER, Kind.ROLLING_RESTART, Kind.LOSE_QUORUM}
)
_OPERATOR: Final = frozenset({Kind.PAUSE, Kind.STEP_DOWN, Kind.TRANSFER})
_DEPOSING: Final = (Kind.BLACK_HOLE, Kind.BLACK_HOLE, Kind.BLACK_HOLE, Kind.END_SESSION, Kind.STEP_DOWN, Kind.TRANSFER)
_MOMENTARY: Final = frozenset(
    {
        Kind.KILL_WORKER,
        Kind.KILL_GUARDIAN,
        Kind.END_SESSION,
        Kind.RESET,
        Kind.RESTART_SERVER,
        Kind.ROLLING_RESTART,
        Kind.STEP_DOWN,
        Kind.TRANSFER,
    }
)
_PLACES: Final = {Kind.HOLD_GIL: 0, Kind.LOSE_RENEWAL: 0, Kind.LOSE_RELEASE: 0, Kind.LOSE_CLAIM: 1}
"""Faults that concern the leader only, or the next one."""
_ROUND_T: Final = 7.0
"""How long faults begin in one round, in session time-outs."""
_AT_ONCE: Final = 3
"""How many faults candidates suffer at a time; those of servers and operators come on top."""
_CALM_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault to come: ``at_s`` after its round began, for ``lasts_s``, to whoever is at ``place`` in the line.

    Place 0 is the leader. Of servers it is the number.
    """

    number: int
    kind: Kind
    at_s: float
    lasts_s: float
    place: int


def schedule(seed: int, timeout_s: float) -> Iterator[list[Fault]]:
    """Rounds of faults, without end (pure). Every kind comes, and what changes the leader comes twice as often.

    Half of the faults are over before a lease is, and half outlive a session. The quorum is always lost
    for longer than a lease, and every pause outlives a session, so that new leaders find it.
    """
    dice = random.Random(seed)
    often = sorted([*Kind, *_PROCESS, *_DEPOSING])
    kinds: list[Kind] = []
    number = 0
    while True:
        at_s, faults = 0.0, []
        while (at_s := at_s + dice.uniform(0.05, 0.35) * timeout_s) < _ROUND_T * timeout_s:
            kinds = kinds or dice.sample(often, len(often))
            kind = kinds.pop()
            brief, long = dice.uniform(0.05, 0.5), dice.uniform(1.0, 1.7)
            always_long = kind in (Kind.LOSE_QUORUM, Kind.PAUSE)
            share = long if always_long or dice.random() < 0.5 else brief
            lasts_s = 0.0 if kind in _MOMENTARY else share * timeout_s
            place = _PLACES.get(kind, dice.choice((0, 0, 0, 0, 0, 0, 0, 1, 2, 3)))
            number += 1
            faults.append(Fault(number, kind, round(at_s, 2), round(lasts_s, 2), place))
        yield faults


class Nemesis:
    """Does one fault after the other to ``cluster``, several at a time, and heals them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._options = cluster.options
        self._timeout_s = cluster.options.session_timeout_s
        self._history = cluster.history
        # One fault at a time for each of these, so that healing one does not heal another.
        parts = [*(f"{part} of {who}" for who in NAMES for part in ("process", "network")), "servers", "pause", "wish"]
        self._busy = {part: threading.Lock() for part in parts}
        # Somebody must be able to succeed, or no two could ever act.
        self._room = threading.Semaphore(_AT_ONCE)

    def round(self, faults: list[Fault]) -> None:
        """Do the faults of a round; returns when all are healed, and somebody leads again, or did not in time."""
        began_s = now_s()
        threads = []
        for fault in faults:
            time.sleep(max(0.0, began_s + fault.at_s - now_s()))
            left_s = max(0.0, began_s + _ROUND_T * self._timeout_s - now_s())
            if fault.kind in _SERVERS | _OPERATOR or self._room.acquire(timeout=left_s):
                threads.append(threading.Thread(target=self._suffer, args=(fault,), daemon=True))
                threads[-1].start()
        for thread in threads:
            thread.join()
        self.settle()

    def settle(self) -> None:
        """Everything is healed: note it, and who does not come back."""
        self._cluster.ensemble.heal()
        since = self._history.size
        self._history.append(What.HEALED)
        if not held_within(lambda: self._is_led(since), 6 * self._timeout_s):
            self._stray("nobody leads although everything is healed")
        elif not self._cluster.all_stand(timeout_s=6 * self._timeout_s):
            standing = ", ".join(self._cluster.observer.view().candidates)
            self._stray(f"not all candidates stand once although everything is healed, but {standing}")
        time.sleep(_CALM_S)

    def _is_led(self, since: int) -> bool:
        lines = list(read(self._history.path, since=since))
        healed = next(line for line in lines if line.what is What.HEALED)
        bounds = Bounds(self._timeout_s)
        newest = max((line.term for line in lines if line.what is What.INAUGURATED), default=0)
        return any(leads(line, healed, newest, bounds) for line in lines)

    def _stray(self, why: str, **values: Any) -> None:
        self._history.append(What.STRAY, why=why, **values)

    def _suffer(self, fault: Fault) -> None:
        kind = fault.kind
        with contextlib.ExitStack() as held:
            if kind not in _SERVERS | _OPERATOR:
                held.callback(self._room.release)
            who = self._take(fault, held)
            if who is None:
                return  # another fault has it in hand
            pid = (self._cluster.worker(who) or 0) if who in NAMES else 0
            noted: dict[str, Any] = {"number": fault.number, "kind": kind, "who": who, "pid": pid}
            self._history.append(What.FAULT, **noted)
            try:
                with self._act(fault, who, pid):
                    time.sleep(fault.lasts_s)
            except (LeaderqError, OSError) as exc:
                noted["why"] = f"{type(exc).__name__}: {exc}"
            self._history.append(What.OVER, **noted)

    def _take(self, fault: Fault, held: contextlib.ExitStack) -> str | None:
        """Whom the fault is for, kept from other faults until ``held`` is closed."""
        view = self._cluster.view
        line = [who for who in dict.fromkeys([*(view.candidates if view else ()), *NAMES]) if who in NAMES]
        if fault.kind in _SERVERS:
            wanted = ["servers"]
        elif fault.kind in _OPERATOR:
            wanted = ["pause" if fault.kind is Kind.PAUSE else "wish"]
        else:
            part = "process" if fault.kind in _PROCESS else "network"
            turn = [*line[fault.place :], *line[: fault.place]]
            able = [who for who in turn if self._cluster.worker(who) and not (part == "process" and who == LASTS)]
            wanted = [f"{part} of {who}" for who in able]
        for part in wanted:
            if self._busy[part].acquire(blocking=False):
                held.callback(self._busy[part].release)
                return part.rpartition(" ")[2]
        return None

    # -- how each is done ------------------------------------------------------------------------------

    def _act(self, fault: Fault, who: str, pid: int) -> AbstractContextManager[None]:
        kind = fault.kind
        if kind in _PROCESS:
            if not pid:
                raise ServerFailed(f"{who} has no worker now")
            return self._hold_gil(who, pid, fault.lasts_s) if kind is Kind.HOLD_GIL else self._to_process(kind, who, pid)
        if kind in _SERVERS:
            return self._to_servers(fault)
        if kind in _OPERATOR:
            return self._to_career(kind, fault.place)
        if kind is Kind.END_SESSION:
            return self._end_session(who)
        return self._to_network(kind, who)

    @contextmanager
    def _to_process(self, kind: Kind, who: str, worker: int) -> Iterator[None]:
        guardian = self._cluster.guardian(who)
        group = kind in (Kind.FREEZE_TREE, Kind.FREEZE_BOTH)
        to_guardian = kind in (Kind.KILL_GUARDIAN, Kind.KILL_BOTH, Kind.FREEZE_GUARDIAN, Kind.FREEZE_BOTH)
        to_worker = kind not in (Kind.KILL_GUARDIAN, Kind.FREEZE_GUARDIAN)
        number = signal.SIGKILL if kind.value.startswith("kill") else signal.SIGSTOP
        if to_guardian:  # first, so that it does not act on what happens to the worker
            sent(guardian, number)
        if to_worker:
            sent(worker, number, group=group)
        try:
            yield
        finally:
            if number is signal.SIGSTOP:
                if to_worker:  # first, so that it has a start
                    sent(worker, signal.SIGCONT, group=group)
                if to_guardian:
                    sent(guardian, signal.SIGCONT)
            elif kind is Kind.KILL_BOTH:
                sent(worker, signal.SIGKILL, group=True)  # what nobody promised to end
            elif kind is Kind.KILL_GUARDIAN:
                self._sees_leave(who, worker)

    def _sees_leave(self, who: str, worker: int) -> None:
        """A worker whose guardian is gone finishes its unit, hands over and leaves."""
        within_s = self._options.handover_budget_s + 2 * self._timeout_s
        if not held_within(lambda: not _runs(worker), within_s):
            self._stray(f"worker {worker} of {who} runs {within_s * patience():.0f} s after its guardian was killed")
        sent(worker, signal.SIGKILL, group=True)

    @contextmanager
    def _hold_gil(self, who: str, worker: int, lasts_s: float) -> Iterator[None]:
        wish = gil_file(self._options.folder, who)
        wish.write_text(str(lasts_s))
        try:
            yield
        finally:
            wish.unlink(missing_ok=True)
            held = wish.with_suffix(HELD)
            eventually(lambda: not held.exists() or not _runs(worker), timeout_s=lasts_s + 60)
            held.unlink(missing_ok=True)

    @contextmanager
    def _end_session(self, who: str) -> Iterator[None]:
        told = json.loads(session_file(self._options.folder, who).read_text())
        credentials = Credentials(told["id"], base64.b64decode(told["password"]))
        end_session(self._cluster.ensemble.address, credentials, timeout_s=3)
        yield

    @contextmanager
    def _to_network(self, kind: Kind, who: str) -> Iterator[None]:
        proxies = self._cluster.proxies[who]
        for proxy in proxies:
            if kind is Kind.BLACK_HOLE:
                proxy.black_hole()
            elif kind is Kind.BLACK_HOLE_TO_SERVER:
                proxy.swallow_direction("to_server")
            elif kind is Kind.BLACK_HOLE_TO_CLIENT:
                proxy.swallow_direction("to_client")
            elif kind is Kind.RESET:
                proxy.cut()
            else:
                proxy.drop_reply_to(_REQUESTS[kind])
        try:
            yield
        finally:
            for proxy in proxies:
                proxy.heal()

    @contextmanager
    def _to_servers(self, fault: Fault) -> Iterator[None]:
        members = self._cluster.ensemble.members
        first = fault.number % len(members)
        struck = [members[first], members[first - 1]] if fault.kind is Kind.LOSE_QUORUM else [members[first]]
        if fault.kind is Kind.RESTART_SERVER:
            struck[0].restart()
        elif fault.kind is Kind.ROLLING_RESTART:
            for member in members:
                member.restart()
        elif fault.kind is Kind.FREEZE_SERVER or (fault.kind is Kind.LOSE_QUORUM and fault.number % 2):
            all_at_once(ZooKeeperServer.freeze, struck)
        else:
            all_at_once(ZooKeeperServer.kill, struck)
        try:
            yield
        finally:
            all_at_once(ZooKeeperServer.heal, struck)

    @contextmanager
    def _to_career(self, kind: Kind, place: int) -> Iterator[None]:
        operator, view = self._cluster.operator, self._cluster.view
        if kind is not Kind.PAUSE:
            if view is None or view.leader is None or len(view.candidates) < 2:
                raise ServerFailed("nobody leads now, or nobody else stands")
            to = view.candidates[place or 1] if place < len(view.candidates) else view.candidates[1]
            operator.wish_for(successor=to if kind is Kind.TRANSFER else None, term=view.term)
            yield
            return
        try:
            operator.pause()
            self._history.append(What.PAUSED)
            yield
        finally:
            self._history.append(What.RESUMED)
            eventually(lambda: _done(operator.resume), timeout_s=120, interval_s=0.2)


def _done(act: Callable[[], object]) -> bool:
    act()
    return True


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"  # whoever is to reap it


def _is_multi(request: bytes, *, having: bytes = b"", lacking: bytes = b"\0no") -> bool:
    return _operation(request) == 14 and having in request and lacking not in request


def _operation(request: bytes) -> int:
    return int.from_bytes(request[4:8], "big")


_REQUESTS: Final[dict[Kind, Callable[[bytes], bool]]] = {
    Kind.LOSE_CREATE: lambda request: _operation(request) in (1, 15) and b"-latch-" in request,
    Kind.LOSE_CLAIM: lambda request: _is_multi(request, having=b'"stage":"inauguration"'),
    Kind.LOSE_RELEASE: lambda request: _is_multi(request, having=b'"reason":"'),
    Kind.LOSE_RENEWAL: lambda request: _is_multi(request, lacking=b'"stage":'),
    Kind.LOSE_READ: lambda request: _operation(request) in (3, 4, 8, 12, 22),
}
"""Whose reply is lost: by ZooKeeper's operation codes, and by what stands in the term's record."""


def run(
    options: NemesisOptions,
    *,
    ensemble: ZooKeeperEnsemble | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> NemesisReport:
    """Let the career of ``options`` suffer; returns what that has shown.

    ``ensemble`` has three servers that run, to be done harm to; without it they are started. ``say`` is told a
    line of progress now and then. The history is kept in ``options.folder``.

    :raises ServerFailed: the career does not even lead when all is well; the last lines of the logs are in it.
    """
    bounds = Bounds(options.session_timeout_s, patience())
    path = options.folder / "history.jsonl"
    with contextlib.ExitStack() as stack:
        servers = ensemble or stack.enter_context(own_ensemble())
        cluster = stack.enter_context(Cluster(options, servers))
        if not cluster.all_stand(timeout_s=60):
            raise ServerFailed(f"not all stand with {options.career}, although all is well\n{cluster.last_words()}")
        nemesis = Nemesis(cluster)
        nemesis.settle()
        began_s, faults_done = now_s(), 0
        for faults in schedule(options.seed, options.session_timeout_s):
            if now_s() - began_s > options.minutes * 60 - _ROUND_T * options.session_timeout_s / 2:
                break
            nemesis.round(faults)
            faults_done += len(faults)
            term = cluster.view.term if cluster.view else 0
            say(f"seed={options.seed} elapsed_s={now_s() - began_s:.0f} faults={faults_done} terms={term}")
        cluster.session.sync()
        cluster.read_register()
    return check(path, seed=options.seed, bounds=bounds)
