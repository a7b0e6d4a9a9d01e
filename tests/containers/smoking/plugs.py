"""The plugs that are pulled, one after the other; each returns when the work goes on and all
candidates stand again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from leaderq.election.observer import View
from leaderq.testing.waiting import patience
from smoking.cluster import Broken, Cluster

SESSION_TIMEOUT_S = 6.0  # as in docker-compose.yml
TICK_S = 0.5
# A session ends up to one and a half ticks after its time-out (see docker-compose.yml); half a one
# is left for the way.
SESSION_OVER_S = SESSION_TIMEOUT_S + 2 * TICK_S
# a broker on a busy machine takes its time to start; it is no promise of ours
_BACK_WITHIN_S = 180.0
_DEPOSED_FOR_S = 4.0  # how long a paused or cut-off leader stays so after the next one leads


@dataclass(frozen=True)
class Gap:
    """What one plug did. Times in seconds: ``led_after_s`` from the old leader's last bill to the
    next one's term (``None``: the same went on), ``stood_still_s`` the longest pause between two
    bills, ``promised_s`` the most that the first may be.
    """

    plug: str
    old: str
    new: str
    term: int
    led_after_s: float | None
    stood_still_s: float
    promised_s: float | None

    @property
    def problem(self) -> str | None:
        """The promise that was broken, as a sentence."""
        if (
            self.led_after_s is None
            or self.promised_s is None
            or self.led_after_s <= self.promised_s * patience()
        ):
            return None
        return (
            f"{self.plug}: the next led after {self.led_after_s:.2f} s, and {self.promised_s:g} s"
            " are promised"
        )


@dataclass
class Plugs:
    """Pulls plugs of ``cluster``; ``tell`` gets a line for each thing done."""

    cluster: Cluster
    tell: Callable[[str], None]
    gaps: list[Gap] = field(default_factory=list)

    def kill(self) -> None:
        """``docker kill``: nobody is left on that host to close the session."""
        leader = self._depose("docker kill", ["kill"], SESSION_OVER_S)
        self._put_back(leader, "start")

    def stop(self) -> None:
        """``docker stop``: SIGTERM to the guardian, which hands over."""
        leader = self._depose("docker stop", ["stop", "--time", "20"], 1.0)
        code = self.cluster.compose.docker(
            "inspect", "--format", "{{.State.ExitCode}}", leader
        ).strip()
        if code != "0":
            raise Broken(f"the leader that was stopped ended with exit code {code}, not 0")
        self._put_back(leader, "start")

    def pause(self) -> None:
        """``docker pause``: the leader is frozen, and wakes deposed."""
        leader = self._depose("docker pause", ["pause"], SESSION_OVER_S)
        time.sleep(_DEPOSED_FOR_S)
        self._put_back(leader, "unpause")

    def cut_off(self) -> None:
        """``docker network disconnect``: the leader runs on, and reaches nobody."""
        network = f"{self.cluster.compose.project}_default"
        leader = self._depose(
            "network disconnect", ["network", "disconnect", network], SESSION_OVER_S
        )
        time.sleep(_DEPOSED_FOR_S)
        self._put_back(leader, "network", "connect", network)

    def restart_zookeeper(self) -> None:
        """Restart the server that leads the ensemble, which then elects another one."""
        server = self.cluster.ensembles_leader()
        self._restart(server, f"restart of {server}")

    def restart_kafka(self) -> None:
        """Restart the one broker."""
        self._restart("kafka", "restart of kafka")

    def _depose(self, plug: str, command: list[str], promised_s: float) -> str:
        before = self.cluster.all_stand()
        leader = str(before.leader)
        self.tell(f"{plug} {leader}, leader of term {before.term}")
        began = time.time()
        self.cluster.compose.docker(*command, leader)
        after = self.cluster.leader(after=before.term)
        if after.leader == leader:
            raise Broken(
                f"{plug}: {leader} leads again in term {after.term}, and others were waiting"
            )
        self.cluster.bills_on()
        # Whose bill is the first of the new term is the proof that it is at work, not what it says
        # of itself.
        begun = self.cluster.ledger.begun(after.term)
        if begun is None or begun.candidate != after.leader:
            raise Broken(
                f"{plug}: {after.leader} leads term {after.term}, and {begun} is what the ledger"
                " has of it"
            )
        self._note(plug, before, after, promised_s, began)
        return leader

    def _restart(self, service: str, plug: str) -> None:
        before = self.cluster.all_stand()
        (container,) = self.cluster.compose.containers(service)
        self.tell(f"{plug}; {before.leader} leads term {before.term}")
        began = time.time()
        self.cluster.compose.docker("restart", "--time", "20", container)
        self.cluster.bills_on(more=1000, within_s=_BACK_WITHIN_S)
        after = self.cluster.all_stand()
        self._note(plug, before, after, None, began)

    def _note(
        self, plug: str, before: View, after: View, promised_s: float | None, began: float
    ) -> None:
        pause_s = self.cluster.ledger.longest_pause_s(began - 1.0, time.time())
        led_after_s = self._led_after_s(before, after)
        self.gaps.append(
            Gap(
                plug,
                str(before.leader),
                str(after.leader),
                after.term,
                led_after_s,
                pause_s,
                promised_s,
            )
        )
        led = (
            "the same leader goes on"
            if led_after_s is None
            else f"{after.leader} leads term {after.term} after {led_after_s:.2f} s"
        )
        self.tell(f"{led}; billing stood still for {pause_s:.2f} s")

    def _led_after_s(self, before: View, after: View) -> float | None:
        """Counted from the last bill: at hundreds a second that is when the plug took effect,
        whatever the command took.
        """
        begun = self.cluster.ledger.begun(after.term)
        if (
            after.term == before.term
            or after.began is None
            or begun is None
            or begun.stood_still_s is None
        ):
            return None
        return after.began - (begun.at - begun.stood_still_s)

    def _put_back(self, container: str, *command: str) -> None:
        self.cluster.compose.docker(*command, container)
        self.cluster.all_stand()
        self.tell(f"{container} is back, and stands for election")
