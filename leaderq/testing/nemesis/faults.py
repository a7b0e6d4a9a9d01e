"""The schedule of faults, how each is done and healed, and the run of rounds."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from leaderq.base import clock
from leaderq.errors import LeaderqError, ServerFailed
from leaderq.running.descendants import descendants_of, kill, stat_of
from leaderq.testing.fault_proxy import Direction
from leaderq.testing.freezing import freeze
from leaderq.testing.nemesis.careers import HELD, gil_file, session_file
from leaderq.testing.nemesis.checkers import FREEZES, Bounds, NemesisReport, check, leads
from leaderq.testing.nemesis.cluster import (
    NAME,
    NAMES,
    SPARED_ONE,
    Cluster,
    NemesisOptions,
    held_within,
)
from leaderq.testing.nemesis.history import Kind, Part, What, read
from leaderq.testing.server import all_at_once
from leaderq.testing.server_links import ServerLink
from leaderq.testing.waiting import eventually, patience
from leaderq.testing.zookeeper_server import ZooKeeperEnsemble, ZooKeeperServer
from leaderq.zookeeper import Credentials, end_session

_ROUND_T: Final = 7.0
"""How long faults begin in one round, in session time-outs."""
_AT_ONCE: Final = 3
"""How many faults candidates suffer at a time; those of servers and operators come in addition."""
_CALM_S: Final = 1.5
_DEPOSING: Final = [
    *[Kind.BLACK_HOLE] * 3,
    *[Kind.STALL_AND_CUT] * 2,
    *(Kind.END_SESSION, Kind.STEP_DOWN, Kind.TRANSFER),
]
_KINDS: Final = [*Kind, *_DEPOSING, *(kind for kind in Kind if kind.part is Part.PROCESS)]
_PLACES: Final = {
    **dict.fromkeys((Kind.HOLD_GIL, Kind.LOSE_RENEWAL, Kind.LOSE_RELEASE), 0),
    Kind.LOSE_CLAIM: 1,
}
"""Faults that concern the leader only, or the next one."""
_LONG: Final = {
    **dict.fromkeys((Kind.LOSE_QUORUM, Kind.PAUSE, Kind.STALL_AND_CUT), 1.0),
    Kind.DELETE_ZNODE: 0.0,
}
"""How likely a fault outlives a session, for the kinds that have a likelihood of their own."""
_TO_GUARDIAN: Final = frozenset(kind for kind in Kind if "guardian" in kind.value)
BETWEEN_SERVERS: Final = frozenset({Kind.CUT_SERVERS, Kind.STALL_AND_CUT})
"""Faults that need servers with links between them."""
_HOLES: Final[dict[Kind, tuple[Direction, ...]]] = {
    Kind.BLACK_HOLE: ("to_server", "to_client"),
    Kind.BLACK_HOLE_TO_SERVER: ("to_server",),
    Kind.BLACK_HOLE_TO_CLIENT: ("to_client",),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault to come. It begins ``at_s`` seconds after its round began, and lasts ``lasts_s``.

    It strikes the candidate at ``place`` in the line. 0 is the leader: the fault waits up to T for
    one.
    """

    number: int
    kind: Kind
    at_s: float
    lasts_s: float
    place: int


def schedule(
    seed: int, timeout_s: float, *, without: Collection[Kind] = ()
) -> Iterator[list[Fault]]:
    """Yield rounds of faults, without end (pure).

    Every kind comes, except those in ``without``; kinds that change the leader come more often.
    Half of the faults are shorter than a lease, and half are longer than a session; of the freezes,
    three tenths are shorter, and seven tenths are longer. The quorum is always lost for longer than
    a lease. Every pause is longer than a session, so that new leaders find it; so is every cut that
    follows a stall.
    """
    dice = random.Random(seed)
    possible = [kind for kind in _KINDS if kind not in without]
    kinds: list[Kind] = []
    number = 0
    while True:
        at_s, faults = 0.0, []
        while (at_s := at_s + dice.uniform(0.05, 0.35) * timeout_s) < _ROUND_T * timeout_s:
            kinds = kinds or dice.sample(possible, len(possible))
            kind = kinds.pop()
            brief, long = dice.uniform(0.05, 0.5), dice.uniform(1.0, 1.7)
            share = _LONG.get(kind, 0.7 if kind in FREEZES else 0.5)
            is_long = dice.random() < share
            lasts_s = (long if is_long else brief) * timeout_s * kind.lasts
            place = _PLACES.get(kind, dice.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 2)))
            number += 1
            faults.append(Fault(number, kind, round(at_s, 2), round(lasts_s, 2), place))
        yield faults


class Nemesis:
    """Does faults to ``cluster``, several at a time, and heals them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._options = cluster.options
        self._timeout_s = cluster.options.session_timeout_s
        self._history = cluster.history
        # One fault at a time for each of these, so that healing one does not heal another.
        self._busy = {(part, who): threading.Lock() for part in Part for who in ("", *NAMES)}
        # Somebody must be able to succeed, or no two could ever act.
        self._room = threading.Semaphore(_AT_ONCE)

    def round(self, faults: list[Fault]) -> None:
        """Do the faults of a round; return when all are healed and all candidates stand."""
        began_s = clock.now_s()
        threads = []
        for fault in faults:
            time.sleep(max(0.0, began_s + fault.at_s - clock.now_s()))
            left_s = max(0.0, began_s + _ROUND_T * self._timeout_s - clock.now_s())
            if not _is_of_candidate(fault) or self._room.acquire(timeout=left_s):
                threads.append(threading.Thread(target=self._suffer, args=(fault,), daemon=True))
                threads[-1].start()
        for thread in threads:
            thread.join()
        self.settle()

    def settle(self) -> None:
        """Heal the servers, note that everything is healed, and note what does not come back: a
        leader, or candidates.
        """
        self._cluster.ensemble.heal()
        since = self._history.size
        self._history.append(What.HEALED)
        if not held_within(lambda: self._is_led(since), 6 * self._timeout_s):
            self._stray("nobody leads although everything is healed")
        elif not held_within(self._cluster.all_stand, 6 * self._timeout_s):
            line = ", ".join(self._cluster.observer.view().candidates)
            self._stray(f"everything is healed, but each candidate does not stand once: {line}")
        time.sleep(_CALM_S)

    def _is_led(self, since: int) -> bool:
        lines = list(read(self._history.path, since=since))
        healed = next(line for line in lines if line.what is What.HEALED)
        newest = max((line.term for line in lines if line.what is What.INAUGURATED), default=0)
        return any(leads(line, healed, newest, Bounds(self._timeout_s)) for line in lines)

    def _stray(self, why: str) -> None:
        self._history.append(What.STRAY, why=why)

    def _suffer(self, fault: Fault) -> None:
        with contextlib.ExitStack() as held:
            if _is_of_candidate(fault):
                held.callback(self._room.release)
            who = self._take(fault, held)
            if who is None:
                return
            pid = self._cluster.worker(who) if who else 0
            if pid is None:
                return  # it has just ended
            noted: dict[str, Any] = {"kind": fault.kind, "who": who, "pid": pid}
            self._history.append(What.FAULT, number=fault.number, **noted)
            try:
                with self._act(fault, who, pid):
                    time.sleep(fault.lasts_s)
            except (LeaderqError, OSError, AssertionError) as exc:
                noted["why"] = f"{type(exc).__name__}: {exc}"
            self._history.append(What.OVER, number=fault.number, **noted)

    def _take(self, fault: Fault, held: contextlib.ExitStack) -> str | None:
        """Return the candidate to strike; until ``held`` is closed, no like fault strikes it.

        ``""``: the fault is not of a candidate. ``None``: other faults have all possible
        candidates.
        """
        until_s = clock.now_s() + self._timeout_s
        while True:
            for who in self._able(fault, patiently=clock.now_s() < until_s):
                lock = self._busy[fault.kind.part, who]
                if lock.acquire(blocking=False):
                    held.callback(lock.release)
                    return who
            if clock.now_s() >= until_s or not _is_of_candidate(fault):
                return None
            time.sleep(0.1)

    def _able(self, fault: Fault, *, patiently: bool) -> list[str]:
        """The candidates that the fault may strike, the best first. ``patiently``: only the leader,
        or nobody.
        """
        view = self._cluster.view
        if not _is_of_candidate(fault):
            return [""]
        line = [*(view.candidates if view else ()), *NAMES]
        turns = [*line[fault.place :], *line[: fault.place]]
        if fault.place == 0 and patiently:
            turns = [view.leader] if view and view.leader else []
        spared = SPARED_ONE if fault.kind.part is Part.PROCESS else ""
        able = [who for who in turns if who in NAMES and who != spared]
        return [who for who in able if self._cluster.worker(who)]

    # -- how each is done --------------------------------------------------------------------------

    def _act(self, fault: Fault, who: str, worker: int) -> AbstractContextManager[None]:
        if fault.kind is Kind.HOLD_GIL:
            return self._hold_gil(who, worker, fault.lasts_s)
        acts: dict[Part, Callable[[], AbstractContextManager[None]]] = {
            Part.PROCESS: lambda: self._to_process(fault.kind, who, worker),
            Part.NETWORK: lambda: self._to_network(fault.kind, who),
            Part.SESSION: lambda: self._end_session(who),
            Part.SERVERS: lambda: (
                self._between_servers(fault)
                if fault.kind in BETWEEN_SERVERS
                else self._to_servers(fault)
            ),
            Part.PAUSE: self._pause,
            Part.WISH: lambda: self._wish(fault),
        }
        return acts[fault.kind.part]()

    @contextmanager
    def _to_process(self, kind: Kind, who: str, worker: int) -> Iterator[None]:
        # The guardian first, so that it does not see what is done to the worker.
        struck = [self._cluster.guardian(who)] if kind in _TO_GUARDIAN else []
        if kind not in (Kind.KILL_GUARDIAN, Kind.FREEZE_GUARDIAN):
            struck.append(worker)
        is_freeze = kind in FREEZES or kind in (Kind.FREEZE_GUARDIAN, Kind.DELETE_ZNODE)
        started = descendants_of(worker)
        if is_freeze:
            freeze(*struck)
        else:
            _send(struck, signal.SIGKILL)
        if kind in (Kind.FREEZE_TREE, Kind.FREEZE_BOTH):
            started = descendants_of(worker)  # it starts nothing more
            struck += [one.pid for one in started]
            freeze(*struck)
        try:
            if kind is Kind.DELETE_ZNODE:
                self._cluster.delete_znodes(who)
            yield
        finally:
            if is_freeze:
                _send(reversed(struck), signal.SIGCONT)  # the guardian last
            elif kind is not Kind.KILL_WORKER:
                if kind is Kind.KILL_GUARDIAN:
                    self._sees_leave(who, worker)
                kill(started)  # which nobody promised to end

    def _sees_leave(self, who: str, worker: int) -> None:
        """Check that a worker whose guardian is gone finishes its unit, hands over and leaves."""
        within_s = self._options.handover_budget_s + 2 * self._timeout_s
        if not held_within(lambda: not _runs(worker), within_s):
            late_s = within_s * patience()
            self._stray(f"worker {worker} of {who} runs {late_s:.0f} s after its guardian died")
            _send([worker], signal.SIGKILL)

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
    def _to_network(self, kind: Kind, who: str) -> Iterator[None]:
        proxies = self._cluster.proxies[who]
        for proxy in proxies:
            if kind in _HOLES:
                for direction in _HOLES[kind]:
                    proxy.swallow_direction(direction)
            elif kind is Kind.RESET:
                proxy.cut()
            else:
                proxy.drop_reply_to(REQUESTS[kind])
        try:
            yield
        finally:
            for proxy in proxies:
                proxy.heal()

    @contextmanager
    def _end_session(self, who: str) -> Iterator[None]:
        told = json.loads(session_file(self._options.folder, who).read_text())
        credentials = Credentials(told["id"], base64.b64decode(told["password"]))
        end_session(self._cluster.ensemble.address, credentials, timeout_s=3)
        yield

    @contextmanager
    def _to_servers(self, fault: Fault) -> Iterator[None]:
        members, kind = self._cluster.ensemble.members, fault.kind
        first = fault.number % len(members)
        struck = [members[first], *([members[first - 1]] if kind is Kind.LOSE_QUORUM else [])]
        if kind is Kind.FREEZE_HEAD:
            struck = [self._cluster.ensemble.leader]
            struck[0].freeze()
        elif kind in (Kind.RESTART_SERVER, Kind.ROLLING_RESTART):
            for member in members if kind is Kind.ROLLING_RESTART else struck:
                member.restart()
        elif kind is Kind.FREEZE_SERVER or (kind is Kind.LOSE_QUORUM and fault.number % 2):
            all_at_once(lambda member: member.freeze(), struck)
        else:
            all_at_once(lambda member: member.kill(), struck)
        try:
            yield
        finally:
            all_at_once(lambda member: member.heal(), struck)

    @contextmanager
    def _between_servers(self, fault: Fault) -> Iterator[None]:
        """Cut the server to which our leader is connected off from the servers' leader.

        After a stall, and in half of the other cases, our leader can reach no other server
        meanwhile; otherwise it would go to another one.
        """
        ensemble, dice = self._cluster.ensemble, random.Random(fault.number)
        head, followers = ensemble.leader, ensemble.followers
        if not followers:
            raise ServerFailed("no server follows now")
        who = self._cluster.view.leader if self._cluster.view else None
        sid = self._session_of(who) if who else 0
        theirs = [one for one in followers if sid and f"sid={sid:#x}," in one.ask("cons")]
        follower = theirs[0] if theirs else dice.choice(followers)
        with contextlib.ExitStack() as healing:
            if who and theirs and (fault.kind is Kind.STALL_AND_CUT or fault.number % 2):
                self._keep_to(follower, who, healing)
            way = ensemble.link(head, follower)
            healing.callback(way.heal)
            if fault.kind is Kind.STALL_AND_CUT:
                self._stall(way, ensemble.link(follower, head), dice)
            way.cut()
            yield

    def _session_of(self, who: str) -> int:
        return int(json.loads(session_file(self._options.folder, who).read_text())["id"])

    def _keep_to(self, server: ZooKeeperServer, who: str, healing: contextlib.ExitStack) -> None:
        """Let ``who`` reach only ``server``, unless its network already suffers from another
        fault.
        """
        lock = self._busy[Part.NETWORK, who]
        if not lock.acquire(blocking=False):
            return
        healing.callback(lock.release)
        for proxy, other in zip(
            self._cluster.proxies[who], self._cluster.ensemble.members, strict=True
        ):
            if other is not server:
                proxy.black_hole()
                healing.callback(proxy.heal)

    def _stall(self, way: ServerLink, back: ServerLink, dice: random.Random) -> None:
        """Hold messages between the two servers back for a time, and then deliver them at once.
        Mostly, what the follower says after that is lost: one of its acknowledgements is heard, and
        the messages on which it depends are not.
        """
        for stalled in (way, back) if dice.random() < 0.3 else (way,):
            stalled.stall()
        time.sleep(dice.uniform(0.3, 0.7) * self._timeout_s)
        if dice.random() < 0.7:
            back.lose()
        for stalled in (way, back):
            stalled.release()
        time.sleep(dice.uniform(0, 0.01 if dice.random() < 0.8 else 0.3))

    @contextmanager
    def _pause(self) -> Iterator[None]:
        operator = self._cluster.operator
        try:
            operator.pause()
            self._history.append(What.PAUSED)
            yield
        finally:
            self._history.append(What.RESUMED)
            eventually(operator.resume, timeout_s=120, interval_s=0.2)

    @contextmanager
    def _wish(self, fault: Fault) -> Iterator[None]:
        view = self._cluster.view
        if view is None or view.leader is None or len(view.candidates) < 2:
            raise ServerFailed("nobody leads now, or nobody else stands")
        others = view.candidates[1:]
        successor = others[fault.place % len(others)] if fault.kind is Kind.TRANSFER else None
        self._cluster.operator.wish_for(successor=successor, term=view.term)
        yield


def _is_of_candidate(fault: Fault) -> bool:
    return fault.kind.part in (Part.PROCESS, Part.NETWORK, Part.SESSION)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _runs(pid: int) -> bool:
    return stat_of(pid)[:1] not in ([], ["Z"])  # a zombie has ended


def _operation(request: bytes) -> int:
    return int.from_bytes(request[4:8], "big")


def _is_multi(request: bytes) -> bool:
    return _operation(request) == 14


REQUESTS: Final[dict[Kind, Callable[[bytes], bool]]] = {
    Kind.LOSE_CREATE: lambda request: _operation(request) in (1, 15) and b"-latch-" in request,
    Kind.LOSE_CLAIM: lambda request: _is_multi(request) and b'"stage":"inauguration"' in request,
    Kind.LOSE_RELEASE: lambda request: _is_multi(request) and b'"reason":"' in request,
    Kind.LOSE_RENEWAL: lambda request: _is_multi(request) and b'"stage":' not in request,
    Kind.LOSE_READ: lambda request: _operation(request) in (3, 4, 8, 12, 22),
}
"""Tests for the requests whose replies are lost, by ZooKeeper's operation codes and by the contents
of the term's record.
"""


def run(
    options: NemesisOptions,
    *,
    ensemble: ZooKeeperEnsemble | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> NemesisReport:
    """Let the career of ``options`` suffer; return the results.

    ``ensemble``: three running servers to do harm to; the ways between them are cut only if they
    are linked. By default, three linked servers are started. ``say`` gets a line of progress after
    each round.

    :raises ConfigurationError: the folder already has a history.
    :raises ServerFailed: not all candidates stand, before any fault; the message has their last
        lines.
    """
    timeout_s = options.session_timeout_s
    with contextlib.ExitStack() as stack:
        small = ZooKeeperEnsemble(3, settings={"forceSync": "no"}, name=NAME, linked=True)
        servers = ensemble or stack.enter_context(small)
        without = frozenset() if servers.is_linked else BETWEEN_SERVERS
        if without:
            say(f"left out, for servers without links: {', '.join(sorted(without))}")
        cluster = stack.enter_context(Cluster(options, servers))
        say("waiting until all candidates stand")
        held_within(lambda: cluster.has_ended() or cluster.all_stand(), 60)
        if cluster.has_ended():
            raise ServerFailed(f"all is well, but a candidate has ended:\n{cluster.last_words()}")
        if not cluster.all_stand():
            line = ", ".join(cluster.observer.view().candidates) or "nobody"
            said = cluster.last_words()
            raise ServerFailed(f"all is well, but not each candidate stands once: {line}\n{said}")
        nemesis = Nemesis(cluster)
        nemesis.settle()
        began_s, done = clock.now_s(), 0
        for faults in schedule(options.seed, timeout_s, without=without):
            if clock.now_s() - began_s > options.minutes * 60 - _ROUND_T * timeout_s / 2:
                break
            nemesis.round(faults)
            done += len(faults)
            term = cluster.view.term if cluster.view else 0
            lost = sum(proxy.dropped for proxies in cluster.proxies.values() for proxy in proxies)
            progress = f"faults={done} terms={term} replies_lost={lost}"
            say(f"elapsed_s={clock.now_s() - began_s:.0f} {progress}")
        cluster.session.sync()
        cluster.read_register()
    cluster.history.close()
    bounds = Bounds(timeout_s, patience())
    return check(cluster.history.path, seed=options.seed, bounds=bounds)
