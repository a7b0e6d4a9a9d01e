"""The dead-letter topic: what is sent there, and reading it from a place up to the end that it has
when reading begins.

Reading joins no group. It ends at the last stable offset, so it does not wait for transactions that
are still open. Errors: :class:`~leaderq.errors.ServersUnreachable`, ``AccessRefused``,
``UnknownTopic``, ``KafkaError``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leaderq.errors import KafkaError, MessageTooLarge, ServersUnreachable, UnknownTopic
from leaderq.kafka.clients.consumer import BatchLost, KafkaAway
from leaderq.kafka.clients.producer import Message, ProducerClient
from leaderq.kafka.dead_letters.format import shortened
from leaderq.kafka.record import Record
from leaderq.kafka.topics import TopicReader
from leaderq.term import Term

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)

MAX_LETTER_BYTES = 64_000_000
"""The largest dead letter that is tried, unless a career allows larger messages."""

LETTER_ROOM_BYTES, FRAME_BYTES = 65_536, 1024
"""How much larger than its record a dead letter may be, and what the protocol adds to it."""

_SEND_S = 10.0
_PAUSE_S = 1.0


@dataclass(eq=False)
class DeadLetterSender:
    """Sends the dead letters of one career, on the career thread. ``add`` puts messages into the
    batch's transaction; ``None``: letters are sent outside transactions. ``most_bytes``: the
    largest letter that is sent whole.
    """

    producer: ProducerClient
    add: Callable[[Iterable[Message]], None] | None
    make_topic: Callable[[], object]
    most_bytes: int

    def send(self, term: Term, topic: str, letter: Message) -> None:
        """Send the letter, without the error's text if it is too large. On return it is stored, or
        waits for the batch's transaction.
        """
        whole = letter._replace(topic=topic)
        if whole.key is None and whole.value is None:  # kafka-python would not send it
            whole = whole._replace(value=b"")
        try:
            # In a transaction the broker's refusal would come too late: with the commit.
            if whole.size <= self.most_bytes:
                self._send(term, whole)
                return
            why = f"it has {whole.size} bytes, and topic {topic!r} takes {self.most_bytes}"
        except MessageTooLarge as exc:
            why = str(exc)
        log.warning("dead letter sent without the text of its error reason=%s", why)
        self._send(term, shortened(whole))

    def _send(self, term: Term, message: Message) -> None:
        if self.add is not None:
            self.add([message])
            return
        was_made = False
        while True:
            term.check()
            try:
                self.producer.send_all([message], _SEND_S)
                return
            except UnknownTopic:
                if was_made:
                    raise
                self.make_topic()
                was_made = True
            except (KafkaAway, ServersUnreachable) as exc:
                log.warning("dead letter waits for Kafka error=%s", exc)
                if not term.wait(_PAUSE_S):
                    what = "the term ends before a dead letter could be sent"
                    raise BatchLost(f"{what}; its record is handed out again") from exc

    def close(self) -> None:
        self.producer.close()


class DeadLetterReader(TopicReader):
    """Reads the letters on ``topic``, and how far the group that replays them has come."""

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except UnknownTopic as exc:
            what = f"no topic {self.topic!r} on Kafka {self._settings.address!r}"
            raise UnknownTopic(
                f"{what}: no dead letter was ever written there; if the career's on_error names"
                " another topic, name it with --topic"
            ) from exc

    def partitions_of(self, topic: str) -> frozenset[int]:
        """Return the partitions of any topic of this cluster; empty if it does not exist."""
        with self._errors_translated("asking for partitions"):
            return frozenset(self._consumer.partitions_for_topic(topic) or ())

    def noted(self) -> dict[int, tuple[int, str]]:
        """Return the group's committed offset of each partition, and the metadata beside it; a
        partition without an offset is absent.
        """
        stored = self._stored(self.existing(), self._settings.open_timeout_s)
        return {where.number: (at, note or "") for where, (at, note) in stored.items()}

    def one(self, number: int, offset: int) -> Record:
        if number in self.ends and self.starts[number] <= offset < self.ends[number]:
            rest = self.read({**self.ends, number: offset})
            found = next((record for record in rest if record.offset >= offset), None)
            if found is not None and found.offset == offset:
                return found
        pairs = {at: (self.starts[at], end - 1) for at, end in sorted(self.ends.items())}
        kept = [f"{at}: {low} to {high}" for at, (low, high) in pairs.items() if low <= high]
        held = f"it holds (partition: offsets) {', '.join(kept)}" if kept else "it is empty"
        where = f"offset {offset} of partition {number} of topic {self.topic!r}"
        raise KafkaError(f"no letter at {where}; {held}")
