"""How long nobody leads: leaderq beside kazoo's ``Election``, in one run, on one server, with the
same session time-out.

    python benchmarks/failover.py [--rounds 30] [--planned-rounds 100] [--timeout-s 4] [--no-kafka]
    [--no-kazoo]

Rows: *killed*: ``kill -9`` of the process that does the work, until ``inaugurate`` (kazoo: the
function given to ``run``) begins in the next one. *SIGTERM* and *planned*: from asking the leader
to go until the next one begins. Compare *leaderq, SIGTERM* with *kazoo, planned*: both are told by
a signal. *leaderq, planned* is ``leaderq step-down``: a wish that is written to ZooKeeper and read
there, so it has two round trips more. *host lost*: ``kill -9`` of guardian and worker at once, so
that nobody ends the session: it lives for its time-out, and up to a tick more. *killed, Kafka*:
until the first record of the new term is handled. All in milliseconds, from just before the signal
or wish is sent; every process reads the same clock. The server is warmed up first, for both sides,
because a production server is warm too.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from figures import print_table, save, summary

from leaderq import Observer, connect
from leaderq.base.clock import now_s
from leaderq.election import Operator
from leaderq.testing import KafkaBroker, ZooKeeperServer, eventually
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.zookeeper import Check, Delete, GetChildren, GetData, SetData

CAREERS = Path(__file__).parent / "careers"


class Stamps:
    """The file in which candidates write when they begin."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def after(self, what: str, at_s: float, *, timeout_s: float = 60.0) -> tuple[str, float]:
        """Who wrote ``what`` first after ``at_s``, and when."""

        def first() -> tuple[str, float] | None:
            if not self.path.exists():
                return None
            for line in self.path.read_text().splitlines():
                kind, who, _, when = line.split()
                if kind == what and float(when) > at_s:
                    return who, float(when)
            return None

        return eventually(first, timeout_s=timeout_s, interval_s=0.005)


class Leaderq:
    """Two candidates under ``leaderq run``."""

    def __init__(
        self,
        target: str,
        career: str,
        zookeeper: str,
        stamps: Stamps,
        timeout_s: float,
        kafka: str | None,
    ) -> None:
        self.target, self.career, self.zookeeper = target, career, zookeeper
        self.stamps, self.timeout_s, self.kafka = stamps, timeout_s, kafka
        self.session = connect(zookeeper)
        self.observer = Observer(self.session, career)
        self.operator = Operator(self.session, career)
        self.candidates: dict[str, CandidateProcess] = {}

    def stand(self, *names: str) -> None:
        for name in names:
            self.candidates[name] = CandidateProcess(
                self.target,
                id=name,
                zookeeper=self.zookeeper,
                kafka=self.kafka,
                cwd=CAREERS,
                session_timeout_s=self.timeout_s,
                environment={"STAMPS": str(self.stamps.path), "CANDIDATE": name},
            ).start()
            self.candidates[name].wait_for("standing", timeout_s=60)

    def settled(self) -> None:
        """Until somebody executes and everybody else waits in line."""
        self.observer.wait_until(
            lambda view: view.stage == "execution" and set(view.candidates) == set(self.candidates),
            timeout_s=60,
        )

    def kill(self) -> tuple[str, float]:
        view = self.observer.view()
        assert view.pid and view.leader
        at_s = now_s()
        os.kill(view.pid, signal.SIGKILL)
        return view.leader, at_s

    def lose(self) -> tuple[str, float]:
        """As if its host had lost its power: nobody is left to end the session."""
        view = self.observer.view()
        assert view.pid and view.leader
        at_s = now_s()
        both = (self.candidates[view.leader].pid, view.pid)
        for how in (signal.SIGSTOP, signal.SIGKILL):  # else one sees the other's death and leaves
            for pid in both:
                os.kill(pid, how)
        return view.leader, at_s

    def terminate(self) -> tuple[str, float]:
        """As a supervisor does: the guardian gets the signal."""
        leader = self.observer.view().leader
        assert leader
        at_s = now_s()
        self.candidates[leader].terminate()
        return leader, at_s

    def revive(self, name: str) -> None:
        self.candidates[name].wait()
        self.stand(name)

    def ask_to_go(self) -> float:
        term = self.observer.view().term
        at_s = now_s()
        self.operator.wish_for(successor=None, term=term)
        return at_s

    def close(self) -> None:
        for candidate in self.candidates.values():
            candidate.stop()
        self.session.close()


class Kazoo:
    """Two processes with kazoo's ``Election``."""

    def __init__(self, zookeeper: str, stamps: Stamps, timeout_s: float) -> None:
        self.zookeeper, self.stamps, self.timeout_s = zookeeper, stamps, timeout_s
        self.session = connect(zookeeper)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.leader = ""

    def stand(self, *names: str) -> None:
        for name in names:
            command = [
                sys.executable,
                "kazoo_election.py",
                self.zookeeper,
                name,
                str(self.timeout_s),
                "/kazoo-election",
            ]
            environment = {**os.environ, "STAMPS": str(self.stamps.path)}
            self.processes[name] = subprocess.Popen(command, cwd=CAREERS, env=environment)

    def settled(self) -> None:
        self.leader, _ = self.stamps.after("inaugurate", self.began_s())
        eventually(
            lambda: len(self.session.children("/kazoo-election")) == len(self.processes),
            timeout_s=60,
        )

    def began_s(self) -> float:
        stamps = self.stamps.path.read_text().splitlines() if self.stamps.path.exists() else []
        return float(stamps[-1].split()[3]) - 1e-6 if stamps else 0.0

    def kill(self) -> tuple[str, float]:
        at_s = now_s()
        self.processes[self.leader].kill()
        return self.leader, at_s

    def revive(self, name: str) -> None:
        self.processes[name].wait()
        self.stand(name)

    def ask_to_go(self) -> float:
        at_s = now_s()
        self.processes[self.leader].send_signal(signal.SIGUSR1)
        return at_s

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.session.close()


def killed(side: Leaderq | Kazoo, rounds: int, what: str = "inaugurate") -> list[float]:
    """Milliseconds from each kill to the next leader's ``what``."""
    return ended(side, side.kill, rounds, what)


def ended(
    side: Leaderq | Kazoo, end: Callable[[], tuple[str, float]], rounds: int, what: str
) -> list[float]:
    gaps = []
    for number in range(rounds):
        side.settled()
        name, at_s = end()
        _, began_s = side.stamps.after(what, at_s)
        gaps.append((began_s - at_s) * 1000)
        progress(f"{end.__name__} {number + 1}/{rounds}: {gaps[-1]:.1f} ms")
        side.revive(name)
    return gaps


def planned(side: Leaderq | Kazoo, rounds: int) -> list[float]:
    """Milliseconds from each request to go to the next leader's beginning."""
    gaps = []
    for number in range(rounds):
        side.settled()
        at_s = side.ask_to_go()
        _, began_s = side.stamps.after("inaugurate", at_s)
        gaps.append((began_s - at_s) * 1000)
        progress(f"planned {number + 1}/{rounds}: {gaps[-1]:.1f} ms")
    return gaps


def progress(text: str) -> None:
    print(f"\r{text:<50}", end="", file=sys.stderr, flush=True)


def feeding(kafka: str, stop: threading.Event) -> None:
    """Keep the topic fed, so that there is always a next record."""
    from leaderq.kafka.topics import produce

    while not stop.is_set():
        produce(kafka, "stamps", [(b"key", b"value")] * 4)
        stop.wait(0.02)


def warm_up(zookeeper: str) -> None:
    """Let the server's JIT compile creates, writes, multis and watches."""
    with connect(zookeeper) as session:
        session.ensure_path("/warm-up")
        for number in range(4000):
            path = session.create("/warm-up/n-", b"x" * 200, sequential=True, ephemeral=True)
            session.multi([Check(path), SetData("/warm-up", b"%d" % number), Delete(path)])
            session.multi_read([GetChildren("/warm-up"), GetData("/warm-up")])
            session.get("/warm-up", watch=lambda _: None)


def run(arguments: argparse.Namespace, folder: Path, stack: ExitStack) -> dict[str, Any]:
    zookeeper = stack.enter_context(ZooKeeperServer())
    figures: dict[str, dict[str, Any]] = {}
    warm_up(zookeeper.address)

    def measure(name: str, side: Leaderq | Kazoo, how: Callable[[], list[float]]) -> None:
        try:
            side.stand("a", "b")
            figures[name] = summary(how())
        finally:
            side.close()

    def ours(target: str, career: str, file: str, kafka: str | None = None) -> Leaderq:
        return Leaderq(
            f"stamps:{target}",
            career,
            zookeeper.address,
            Stamps(folder / file),
            arguments.timeout_s,
            kafka,
        )

    side = ours("Stamps", "stamps", "killed")
    measure("leaderq, killed", side, lambda: killed(side, arguments.rounds))
    told = ours("Stamps", "stamps", "told")
    measure(
        "leaderq, SIGTERM",
        told,
        lambda: ended(told, told.terminate, arguments.rounds, "inaugurate"),
    )
    side = ours("Stamps", "stamps", "planned")
    measure("leaderq, planned", side, lambda: planned(side, arguments.planned_rounds))
    lost = ours("Stamps", "stamps", "lost")
    hosts = max(1, arguments.rounds // 3)
    measure("leaderq, host lost", lost, lambda: ended(lost, lost.lose, hosts, "inaugurate"))
    if not arguments.no_kafka:
        from leaderq.kafka.topics import create_topics

        broker = stack.enter_context(KafkaBroker())
        create_topics(broker.address, {"stamps": 4})
        stop = threading.Event()
        feeder = threading.Thread(target=feeding, args=(broker.address, stop), daemon=True)
        feeder.start()
        side = ours("KafkaStamps", "kafka-stamps", "kafka", broker.address)
        measure("leaderq, killed, Kafka", side, lambda: killed(side, arguments.rounds, "record"))
        stop.set()
        feeder.join()
    if not arguments.no_kazoo:
        peer = Kazoo(zookeeper.address, Stamps(folder / "kazoo-killed"), arguments.timeout_s)
        measure("kazoo, killed", peer, lambda: killed(peer, arguments.rounds))
        peer = Kazoo(zookeeper.address, Stamps(folder / "kazoo-planned"), arguments.timeout_s)
        measure("kazoo, planned", peer, lambda: planned(peer, arguments.planned_rounds))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--planned-rounds", type=int, default=100)
    parser.add_argument(
        "--timeout-s", type=float, default=4.0, help="session time-out of both sides"
    )
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--no-kazoo", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        figures = run(arguments, Path(folder), stack)
    print_table(
        f"milliseconds without a leader, session time-out {arguments.timeout_s:g} s", figures
    )
    ratios = {
        kind: round(figures[f"kazoo, {kind}"]["median"] / figures[f"leaderq, {kind}"]["median"], 1)
        for kind in ("killed", "planned")
        if f"kazoo, {kind}" in figures
    }
    if "kazoo, planned" in figures:
        ratios["by a signal"] = round(
            figures["kazoo, planned"]["median"] / figures["leaderq, SIGTERM"]["median"], 1
        )
    print("medians, kazoo / leaderq:", ratios)
    path = save(
        "failover", {"timeout_s": arguments.timeout_s, "figures_ms": figures, "ratios": ratios}
    )
    print("saved:", path)


if __name__ == "__main__":
    main()
