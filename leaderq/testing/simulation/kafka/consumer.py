"""A :class:`~leaderq.kafka.clients.consumer.ConsumerClient` on a simulated cluster.

Where the two real clients differ, it behaves as kafka-python does: a fenced member learns of that
only by a commit or a join (B3), so it goes on reading; ``allowed`` is asked right before each
request to join.

It has no thread of its own. So heartbeats are sent, and their answers are heard, only while the
owner calls ``poll`` or ``attend``. An owner that calls neither for a session loses its membership,
as a real client does whose process stands still. A commit goes on while the owner does other
things, but it is repeated only while somebody waits for it.

With ``timeout_s=0`` a poll does not wait: it returns what has come since the last one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from leaderq.base import clock
from leaderq.errors import KafkaError
from leaderq.kafka.clients.consumer import (
    CommitFuture,
    ConsumerClient,
    ConsumerSettings,
    Failure,
    KafkaAway,
    MembershipLost,
    Offsets,
)
from leaderq.kafka.record import Offset, Partition, Record, after, epoch_of
from leaderq.testing.simulation.kafka.cluster import (
    WAITS,
    BrokerCluster,
    BrokerRequest,
    TopicFacts,
)
from leaderq.testing.simulation.kafka.consumer_group import (
    GroupMembership,
    JoinAnswer,
    StoredOffset,
)
from leaderq.testing.simulation.kafka.error_codes import ErrorCode
from leaderq.testing.simulation.kafka.network import BrokerLink, SimulatedKafka

log = logging.getLogger(__name__)

FETCH_RECORDS = 500
_HEARTBEAT_S = 3.0
_COMMIT_S = 1.0
_JOIN_S = 1.0
_PAUSE_S = 0.02
_LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class _Reading:
    """The position in one partition, and what was fetched of it and not returned yet."""

    __slots__ = ("behind", "fetched", "is_resting", "position", "seen", "taken")

    def __init__(self, position: Offset, is_resting: bool) -> None:
        self.position = position
        self.is_resting = is_resting
        self.fetched: list[Record] = []
        self.taken = 0
        self.behind = position  # where to go on once all that was fetched is returned
        self.seen = -1  # how much had changed when nothing was found

    def take(self, most: int) -> list[Record]:
        rows = self.fetched[self.taken : self.taken + most]
        self.taken += len(rows)
        if self.taken == len(self.fetched):
            self.position, self.fetched, self.taken = self.behind, [], 0
        else:
            self.position = after(rows[-1])
        return rows


class _Asked(NamedTuple):
    """One partition of a fetch that is under way."""

    where: Partition
    reading: _Reading
    position: int


class SimulatedConsumer(ConsumerClient):
    """The consumer; see the module. ``metadata_s``: how long a new partition may go unnoticed."""

    metadata_s = 10.0

    def __init__(self, kafka: SimulatedKafka, settings: ConsumerSettings) -> None:
        super().__init__(settings)
        self._kafka = kafka
        self._topics: dict[str, TopicFacts] = {}
        self._known_s = 0.0
        self._asking: BrokerRequest | None = None
        self._member = self._unknown_member()
        self._needs_join = settings.membership
        self._joining: BrokerRequest | None = None
        self._syncing: BrokerRequest | None = None
        self._joined: GroupMembership | None = None
        self._beating: BrokerRequest | None = None
        self._beat_s = 0.0
        self._is_told_to_stop_beating = False
        self._held: dict[Partition, _Reading | None] = {}
        self._fetches: dict[int, tuple[BrokerRequest, list[_Asked]]] = {}
        self._log_ends: dict[Partition, int] = {}

    def _unknown_member(self, member_id: str = "") -> GroupMembership:
        settings = self._settings
        name = settings.member if settings.membership else None
        return GroupMembership(settings.group, member_id, name)

    # ---- connecting ------------------------------------------------------------------------------

    def _find_topics(self, until_s: float) -> None:
        settings = self._settings
        link = BrokerLink(self._kafka, settings.client_id, settings.request_timeout_s)
        link.require_address(settings.address, until_s - clock.now_s())
        self._client = link
        self._learn(self._ask_any("connecting", lambda _: link.cluster.topics(), until_s))

    @property
    def _link(self) -> BrokerLink:
        link: BrokerLink = self._consumer
        return link

    def _ask_any(self, doing: str, work: Callable[[int], Any], until_s: float) -> Any:
        return self._link.ask(doing, self._link.any_broker, work, until_s)

    def _ask_group(self, doing: str, work: Callable[[int], Any], timeout_s: float) -> Any:
        find = partial(self._link.coordinator_of, self._settings.group)
        return self._link.ask(doing, find, work, clock.now_s() + timeout_s)

    # ---- topics ----------------------------------------------------------------------------------

    def _learn(self, topics: Mapping[str, TopicFacts]) -> None:
        wanted = self._settings.topics if self._pattern is None else self._pattern.among(topics)
        self._topics = {name: topics[name] for name in wanted if name in topics}  # type: ignore[union-attr]
        self._known_s = clock.now_s()

    @property
    def _names(self) -> tuple[str, ...]:
        topics = self._settings.topics
        return topics if isinstance(topics, tuple) else tuple(self._topics)

    def _keep_known(self) -> None:
        """Ask for the topics from time to time, without waiting."""
        link = self._link
        if self._asking is not None:
            if not link.is_answered(self._asking):
                return
            if self._asking.error is None:
                self._learn(self._asking.result)
            self._asking = None
        if clock.now_s() > self._known_s + self.metadata_s:
            broker = link.any_broker()
            if broker is not None:
                self._known_s = clock.now_s()
                self._asking = link.send(broker, lambda _: link.cluster.topics())
                if link.is_answered(self._asking):
                    self._keep_known()

    def existing(self) -> frozenset[Partition]:
        return frozenset(self._partitions())

    def _partitions(self) -> list[Partition]:
        facts = self._topics.items()
        return [Partition(name, at) for name, each in facts for at in range(each.partitions)]

    def topic_ids(self) -> dict[str, str]:
        return {name: each.id for name, each in self._topics.items()}

    # ---- membership ------------------------------------------------------------------------------

    def _join(self, timeout_s: float) -> bool:
        self.attend(timeout_s)
        return self.joins > 0 and not self._needs_join and not self.is_joining

    def _hold(self, partitions: Iterable[Partition]) -> None:
        self._held = dict.fromkeys(sorted(partitions))
        self._fetches.clear()
        self.joins += 1

    @property
    def is_joining(self) -> bool:
        return self._joining is not None or self._syncing is not None

    def _ask_to_join(self) -> None:
        self._needs_join = True

    def attend(self, timeout_s: float) -> None:
        self._keep_known()
        if not self._settings.membership:
            return
        until_s = clock.now_s() + timeout_s
        self._keep_beating()
        pause_s = _PAUSE_S
        while self._needs_join or self.is_joining:
            if not self._advance_join(until_s):
                left_s = until_s - clock.now_s()
                if left_s <= 0:
                    return
                clock.sleep(min(left_s, pause_s))
                pause_s *= 2

    def _advance_join(self, until_s: float) -> bool:
        """Take the next step of joining; return whether that was possible by ``until_s``."""
        link, settings = self._link, self._settings
        if self._syncing is not None:
            return self._synced(until_s)
        if self._joining is None:
            self._allowed()
            broker = link.coordinator_of(settings.group)
            if broker is None:
                return False
            self._needs_join = False
            work = partial(self._work_of_join, broker, self._member, self._names)
            self._joining = link.send(broker, work)
        if not link.wait([self._joining], until_s):
            return False
        sent, self._joining = self._joining, None
        if sent.error is not None:
            self._join_failed(sent.error.code)
            return sent.error.code in _LOST
        answer: JoinAnswer = sent.result
        self._joined = answer.membership
        self._send_sync(answer)
        return True

    def _work_of_join(
        self, broker: int, who: GroupMembership, topics: tuple[str, ...], request: BrokerRequest
    ) -> object:
        cluster, settings = self._kafka.cluster, self._settings
        group = cluster.group_at(broker, settings.group)
        times = settings.session_timeout_s, settings.max_poll_interval_s
        group.join(who, topics, *times, lambda answer: cluster.answer(request, answer))
        return WAITS

    def _send_sync(self, answer: JoinAnswer) -> None:
        cluster, who, name = self._kafka.cluster, answer.membership, self._settings.group
        given = assigned(answer.members, self._partitions()) if answer.is_leader else None
        broker = self._link.coordinator_of(name)
        if broker is None:
            self._needs_join = True
            return

        def work(request: BrokerRequest) -> object:
            group = cluster.group_at(broker, name)
            group.sync(who, given, lambda found: cluster.answer(request, found))
            return WAITS

        self._syncing = self._link.send(broker, work)

    def _synced(self, until_s: float) -> bool:
        if self._syncing is None or not self._link.wait([self._syncing], until_s):
            return False
        sent, self._syncing = self._syncing, None
        if sent.error is not None:
            self._join_failed(sent.error.code)
            return sent.error.code.failure is Failure.MEMBERSHIP
        if self._joined is not None:
            self._member = self._joined
        self._beat_s = clock.now_s()
        self._is_told_to_stop_beating = False
        self._hold(sent.result)
        return True

    def _join_failed(self, code: ErrorCode) -> None:
        """Join again if that helps; otherwise raise an error."""
        self._needs_join = True
        if code in _LOST:
            self._member = self._unknown_member()
        elif code.failure not in (Failure.AWAY, Failure.MEMBERSHIP):
            raise code.failure.error(self._link.told("attending the group") + f": {code.name}")

    def _keep_beating(self) -> None:
        """Send a heartbeat from time to time, without waiting for its answer."""
        link, who = self._link, self._member
        if self._beating is not None:
            if not link.is_answered(self._beating):
                return
            error, self._beating = self._beating.error, None
            if error is not None and who.generation_id >= 0:
                self._lost(error.code, who)
        is_member = self._member.generation_id >= 0 and not self._is_told_to_stop_beating
        if is_member and clock.now_s() >= self._beat_s + self._heartbeat_s:
            broker = link.coordinator_of(self._settings.group)
            if broker is not None:
                self._beat_s = clock.now_s()
                cluster, name, who = link.cluster, self._settings.group, self._member
                self._beating = link.send(
                    broker, lambda _: cluster.group_at(broker, name).heartbeat(who)
                )
                if link.is_answered(self._beating):
                    self._keep_beating()

    @property
    def _heartbeat_s(self) -> float:
        return min(_HEARTBEAT_S, self._settings.session_timeout_s / 3)

    def _lost(self, code: ErrorCode, who: GroupMembership) -> None:
        """Note that the coordinator no longer knows ``who`` as a member, or begins a rebalance."""
        if who is not self._member:
            return  # it was about a former membership
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._is_told_to_stop_beating = True  # nobody else is told (B3)
        elif code.failure is Failure.MEMBERSHIP:
            self._needs_join = True
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self._member = self._unknown_member()
            elif code is ErrorCode.ILLEGAL_GENERATION:
                self._member = self._unknown_member(who.member_id)

    def assigned(self) -> frozenset[Partition]:
        return frozenset(self._held)

    def group_metadata(self) -> GroupMembership | None:
        return self._member if self._member.generation_id >= 0 else None

    # ---- reading ---------------------------------------------------------------------------------

    def poll(self, timeout_s: float, max_records: int) -> dict[Partition, Sequence[Record]]:
        if self._settings.membership and (self._needs_join or self.is_joining):
            self.attend(_JOIN_S)
            return {}  # assigned again, perhaps; the caller sets positions first
        until_s = clock.now_s() + timeout_s
        self._keep_known()
        if self._settings.membership:
            self._keep_beating()
        while True:
            self._send_fetches()
            self._take_over_fetched()
            if found := self._taken(max_records):
                return found
            left_s = until_s - clock.now_s()
            if left_s <= 0:
                return {}
            if self._fetches:
                sent = [each for each, _ in self._fetches.values()]
                self._link.wait(sent, min(until_s, clock.now_s() + self._link.late_in_s(sent)))
                continue
            looked = self._link.cluster.log_changes
            if not any(map(partial(_is_to_fetch, looked), self._held.values())):
                self._link.await_change(partial(_has_changed, self._link.cluster, looked), left_s)

    def _send_fetches(self) -> None:
        """Ask each leader for the partitions that it leads, with one request at a time for each
        leader; ask nothing if the cluster has not changed.
        """
        self._link.look()
        cluster = self._link.cluster
        wanted: dict[int, dict[Partition, _Reading]] = {}
        for where, reading in self._held.items():
            if reading is None or not _is_to_fetch(cluster.log_changes, reading):
                continue
            leader = cluster.leader_of(where)
            if leader is None:
                reading.seen = cluster.log_changes
            elif leader not in self._fetches:
                wanted.setdefault(leader, {})[where] = reading
        for leader, readings in wanted.items():
            asked = {where: int(each.position) for where, each in readings.items()}
            work = partial(_fetch, cluster, leader, asked)
            which = [_Asked(where, each, each.position) for where, each in readings.items()]
            self._fetches[leader] = self._link.send(leader, work), which

    def _take_over_fetched(self) -> None:
        for leader in list(self._fetches):
            sent, asked = self._fetches[leader]
            is_answered = self._link.is_answered(sent)
            is_late = not is_answered and self._link.is_late(sent)
            if not is_answered and not is_late:
                continue
            del self._fetches[leader]
            if is_late or sent.error is not None:
                continue  # asked again
            seen, found = sent.result
            for where, reading, position in asked:
                # else it was sought meanwhile, or its next leader has answered before
                is_wanted = not reading.fetched and reading.position == position
                if is_wanted and self._held.get(where) is reading:
                    self._fill(where, reading, found.get(where), seen)

    def _fill(self, where: Partition, reading: _Reading, part: Any, seen: int) -> None:
        if part is None or isinstance(part, ErrorCode):
            reading.seen = seen
            if part is ErrorCode.OFFSET_OUT_OF_RANGE:
                reading.seen = -1
                told = f"{self._link.told('reading')}: {where}@{reading.position}"
                raise Failure.GONE.error(told)
            return
        reading.fetched, reading.taken = part.records, 0
        reading.behind = Offset(part.next_offset, part.epoch)
        if not part.records:
            reading.position = reading.behind

    def _taken(self, most: int) -> dict[Partition, Sequence[Record]]:
        found: dict[Partition, Sequence[Record]] = {}
        for where, reading in list(self._held.items()):
            if most <= 0:
                break
            if reading is not None and reading.fetched and not reading.is_resting:
                found[where] = rows = reading.take(most)
                most -= len(rows)
                # the others come first next time
                self._held[where] = self._held.pop(where)
        return found

    def seek(self, offsets: Offsets, resting: Collection[Partition] = ()) -> None:
        for where in offsets:
            if where not in self._held:
                raise KafkaAway(f"partition {where} is not held any more")
        for where, reading in self._held.items():
            if where in offsets:
                to = offsets[where]
                self._held[where] = _Reading(Offset(to, epoch_of(to)), where in resting)
            elif reading is not None:
                reading.is_resting = where in resting

    def positions(self) -> dict[Partition, int]:
        return {where: each.position for where, each in self._held.items() if each is not None}

    # ---- offsets ---------------------------------------------------------------------------------

    def _stored(
        self, partitions: Collection[Partition], timeout_s: float
    ) -> dict[Partition, tuple[Offset, str]]:
        wanted = sorted(partitions)
        cluster, name = self._link.cluster, self._settings.group
        stored = self._ask_group(
            "reading committed offsets",
            lambda broker: cluster.group_at(broker, name).fetch(wanted),
            timeout_s,
        )
        return {
            where: (Offset(each.offset, each.epoch), each.note) for where, each in stored.items()
        }

    def _begin_commit(self, offsets: Offsets, note: str) -> CommitFuture:
        stored = {where: StoredOffset(int(at), epoch_of(at), note) for where, at in offsets.items()}
        return _SimulatedCommit(self, self._link, stored)

    def start_offsets(self, timeout_s: float) -> dict[Partition, int]:
        return dict.fromkeys(self._asked_for_ends(timeout_s), 0)

    def end_offsets(self, timeout_s: float) -> dict[Partition, int]:
        ends = self._asked_for_ends(timeout_s)
        # a real client is told both in the answers to its fetches, which it sends all the time
        self._log_ends = {where: end for where, (_, end) in ends.items()}
        return {where: stable for where, (stable, _) in ends.items()}

    def log_ends(self) -> dict[Partition, int]:
        return {where: end for where, end in self._log_ends.items() if where in self._held}

    def _asked_for_ends(self, timeout_s: float) -> dict[Partition, tuple[int, int]]:
        """Ask for the ends of all partitions, with one request to each broker that leads any."""
        cluster, left = self._link.cluster, self._partitions()
        found: dict[Partition, tuple[int, int]] = {}
        until_s = clock.now_s() + timeout_s
        while left:

            def ends(broker: int, asked: list[Partition] = left) -> Any:
                led = [where for where in asked if cluster.leader_of(where) == broker]
                return cluster.ends(broker, led or asked)

            find = partial(self._link.leader_of, left[0])
            found |= self._link.ask("asking for offsets", find, ends, until_s)
            left = [where for where in left if where not in found]
        return found

    def _let_go(self) -> None:
        self._held = {}


def _is_to_fetch(looked: int, reading: _Reading | None) -> bool:
    """Whether a fetch may find something: ``reading`` does not rest, nothing that it fetched still
    waits, and the number of changes of the cluster, ``looked``, differs from what it last saw.
    """
    if reading is None or reading.is_resting or reading.fetched:
        return False
    return reading.seen != looked


def _has_changed(cluster: BrokerCluster, seen: int) -> bool:
    return cluster.log_changes != seen


def _fetch(cluster: Any, leader: int, asked: Any, _request: BrokerRequest) -> Any:
    return cluster.fetch(leader, asked, FETCH_RECORDS)


def assigned(
    members: Sequence[tuple[str, str, tuple[str, ...]]], partitions: Iterable[Partition]
) -> dict[str, tuple[Partition, ...]]:
    """The partitions of each member, as the range assignor gives them: of each topic a run of
    partitions; the first members get one more.
    """
    found: dict[str, list[Partition]] = {member_id: [] for _, member_id, _ in members}
    by_topic: dict[str, list[Partition]] = {}
    for where in sorted(partitions):
        by_topic.setdefault(where.topic, []).append(where)
    for topic, places in by_topic.items():
        readers = [member_id for _, member_id, topics in sorted(members) if topic in topics]
        for at, member_id in enumerate(readers):
            share, more = divmod(len(places), len(readers))
            begin = at * share + min(at, more)
            found[member_id] += places[begin : begin + share + (at < more)]
    return {member_id: tuple(places) for member_id, places in found.items()}


class _SimulatedCommit:
    """A commit that is under way; see the module."""

    def __init__(
        self,
        consumer: SimulatedConsumer,
        link: BrokerLink,
        offsets: Mapping[Partition, StoredOffset],
    ) -> None:
        self._consumer = consumer
        self._link = link
        self._who = consumer._member
        self._offsets = offsets
        self._give_up_s = clock.now_s() + _COMMIT_S
        self._pause_s = _PAUSE_S
        self._is_done = False
        self._error: KafkaError | None = None
        self._sent: BrokerRequest | None = None
        membership = consumer._settings.membership
        if membership and (self._who.generation_id < 0 or consumer.is_joining):
            what = f"{link.told('committing')}: this consumer is not a member at the moment"
            self._error = MembershipLost(what)
        else:
            self._send()

    def _send(self) -> None:
        cluster, who, offsets = self._link.cluster, self._who, self._offsets
        broker = self._link.coordinator_of(who.group_id)
        if broker is not None:
            self._sent = self._link.send(broker, lambda _: cluster.commit(broker, who, offsets))

    def done(self, wait_s: float) -> bool:
        until_s = clock.now_s() + wait_s
        while not self._is_done and self._error is None:
            if self._sent is not None:
                if not self._link.wait([self._sent], until_s):
                    return False
                self._hear(self._sent)
            elif clock.now_s() >= self._give_up_s:
                self._error = KafkaAway(f"{self._link.told('committing')}: no coordinator answers")
            else:
                left_s = until_s - clock.now_s()
                if left_s <= 0:
                    return False
                clock.sleep(min(left_s, self._pause_s))
                self._pause_s *= 2
                self._send()
        if self._error is not None:
            raise self._error
        return True

    def _hear(self, sent: BrokerRequest) -> None:
        self._sent = None
        if sent.error is None:
            self._is_done = True
        elif not sent.error.code.is_retriable:
            code = sent.error.code
            self._consumer._lost(code, self._who)
            found: Any = code.failure.error(f"{self._link.told('committing')}: {sent.error}")
            self._error = found
