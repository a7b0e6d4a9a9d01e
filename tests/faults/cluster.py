"""What the tests under faults run: three candidates of one career, each behind a fault proxy of its
own, and who does them harm.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from leaderq import Observer, connect
from leaderq.election import Operator, View
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.fault_proxy import FaultProxy
from leaderq.testing.freezing import freeze
from leaderq.testing.waiting import patience

CAREERS = Path(__file__).parent / "careers"
NAMES = ("a", "b", "c")
PATIENCE_S = 40


class Cluster:
    """Three candidates for ``career`` (``target`` in ``careers/``), and a session that watches
    them.
    """

    def __init__(
        self,
        target: str,
        *,
        career: str,
        zookeeper: str,
        kafka: str,
        proxy: Callable[[str], FaultProxy],
        root: str,
        environment: Mapping[str, str],
        session_timeout_s: float = 2,
        arguments: Sequence[str] = (),
    ) -> None:
        self._target, self._kafka, self._environment = target, kafka, dict(environment)
        self._session_timeout_s = session_timeout_s
        # Who is started while the broker is away waits for it as long as the test does.
        waiting = ["--connect-timeout-s", str(PATIENCE_S * patience())]
        self._arguments = ["--root", root, "--cool-off-s", "0.2", *waiting, *arguments]
        self.proxies = {name: proxy(zookeeper) for name in NAMES}
        self.candidates: dict[str, CandidateProcess] = {}
        self._all: list[CandidateProcess] = []
        self.session = connect(zookeeper)
        self.observer = Observer(self.session, career, root=root)
        self.operator = Operator(self.session, career, root=root)
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        """Start that candidate, for the first time or again."""
        self.candidates[name] = CandidateProcess(
            self._target,
            id=name,
            zookeeper=self.proxies[name].address,
            kafka=self._kafka,
            cwd=CAREERS,
            session_timeout_s=self._session_timeout_s,
            arguments=self._arguments,
            environment=self._environment,
        ).start()
        self._all.append(self.candidates[name])

    def said(self, event: str) -> list[dict[str, Any]]:
        """The lines that all candidates ever started have logged for ``event``."""
        return [line for candidate in self._all for line in candidate.said(event)]

    def led(self, *, supervised: bool = False) -> View:
        """The view once somebody executes and all three stand.

        ``supervised``: whoever has ended meanwhile is started again, as a supervisor does. On a
        busy machine a guardian may find its worker late, and end it, without any fault of ours.
        """

        def is_led(seen: View) -> bool:
            if supervised:
                self._restart_ended()
            return seen.stage == "execution" and len(set(seen.candidates)) == 3

        view = self.observer.wait_until(is_led, timeout_s=PATIENCE_S * patience())
        assert view.stage == "execution", f"nobody leads: {view}\n" + self.last_words()
        assert len(set(view.candidates)) == 3, f"not all stand: {view}\n" + self.last_words()
        return view

    def _restart_ended(self) -> None:
        for name, candidate in list(self.candidates.items()):
            if candidate.process.poll() is not None:
                self.start(name)

    def succeeded(self, before: View) -> View:
        """The view once another term has begun."""
        view = self.observer.wait_until(
            lambda seen: seen.term > before.term, timeout_s=PATIENCE_S * patience()
        )
        assert view.term > before.term, f"nobody succeeded {before}\n" + self.last_words()
        return view

    def eventually(
        self, fact: Callable[[], object], message: str, *, timeout_s: float = PATIENCE_S
    ) -> None:
        """Until ``fact`` is true; if it never is, the error says what the candidates said last."""
        try:
            eventually(fact, timeout_s=timeout_s, message=message)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.last_words()}") from None

    def last_words(self) -> str:
        """The last lines of the log of every candidate ever started, with its exit code if it has
        ended.
        """
        return "\n".join(
            f"{line.get('candidate', line.get('id', ''))} ({one.process.pid},"
            f" {one.process.poll()}): {line.get('time', '')}"
            f" {line['message']}{line.get('traceback', '')}"
            for one in self._all
            for line in one.lines[-20:] or [{"message": "nothing said"}]
        )

    def close(self) -> None:
        """Stop all candidates, at once: one after the other would hand the leadership round."""
        threads = [
            threading.Thread(target=candidate.stop) for candidate in self.candidates.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.session.close()


class Nemesis:
    """Every way in which a leader loses its office; each method returns when the fault has had its
    effect and is healed.

    ``kafka`` is the proxy behind which all candidates reach Kafka, ``None`` if they reach it
    directly.
    """

    def __init__(self, cluster: Cluster, kafka: FaultProxy | None = None) -> None:
        self._cluster = cluster
        self._kafka = kafka

    @property
    def faults(self) -> list[Callable[[View], None]]:
        """All of them."""
        found = [
            self.kill,
            self.freeze,
            self.cut_off,
            self.transfer,
            self.step_down,
            self.stop,
            self.freeze_and_kill,
        ]
        return (
            found
            if self._kafka is None
            else [*found, self.lose_kafka, self.reset_kafka, self.change_without_kafka]
        )

    def kill(self, view: View) -> None:
        """kill -9."""
        leader = self._leader(view)
        leader.signal_worker(signal.SIGKILL)
        self._cluster.succeeded(view)
        leader.wait()
        self._cluster.start(leader.id)

    def freeze(self, view: View) -> None:
        """Stop the process past its term; it goes on as a zombie."""
        pid = self._leader(view).worker_pid
        freeze(pid)
        try:
            self._cluster.succeeded(view)
        finally:
            os.kill(pid, signal.SIGCONT)

    def cut_off(self, view: View) -> None:
        """Swallow what goes between the leader and ZooKeeper."""
        proxy = self._cluster.proxies[self._leader(view).id]
        proxy.black_hole()
        self._cluster.succeeded(view)
        proxy.heal()

    def transfer(self, view: View) -> None:
        """Hand the leadership to the last in line."""
        self._cluster.operator.transfer(view.candidates[-1], timeout_s=PATIENCE_S * patience())

    def step_down(self, view: View) -> None:
        """Ask the leader to stand at the end of the line."""
        self._cluster.operator.step_down(timeout_s=PATIENCE_S * patience())

    def stop(self, view: View) -> None:
        """SIGTERM, as a supervisor does."""
        leader = self._leader(view)
        leader.terminate()
        self._cluster.succeeded(view)
        assert leader.wait() == 0, (
            f"exit code {leader.process.returncode}\n" + self._cluster.last_words()
        )
        self._cluster.start(leader.id)

    def lose_kafka(self, view: View) -> None:
        """Swallow what goes between all candidates and Kafka, for longer than a lease and shorter
        than patience.
        """
        assert self._kafka is not None
        self._kafka.black_hole()
        threading.Event().wait(2.0)  # how long Kafka is away: the fault itself, no fact to wait for
        self._kafka.heal()

    def reset_kafka(self, view: View) -> None:
        """Reset all connections to Kafka."""
        assert self._kafka is not None
        self._kafka.cut()

    def change_without_kafka(self, view: View) -> None:
        """Kill the leader while Kafka is away: the next one takes office without it, and works when
        it is back.
        """
        assert self._kafka is not None
        self._kafka.black_hole()
        self.kill(view)
        self._kafka.heal()

    def freeze_and_kill(self, view: View) -> None:
        """Freeze the leader, kill its successor at work, and let the one go on while the third
        leads.
        """
        pid = self._leader(view).worker_pid
        freeze(pid)
        try:
            self.kill(self._cluster.succeeded(view))
        finally:
            os.kill(pid, signal.SIGCONT)

    def _leader(self, view: View) -> CandidateProcess:
        assert view.leader is not None
        return self._cluster.candidates[view.leader]
