"""The desk of a career: its user's code, its offset store and its drain thread, as
:mod:`leaderq.kafka.handling.handling` sees them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leaderq.errors import MessageTooLarge, ServersUnreachable
from leaderq.kafka.clients.consumer import BatchLost, KafkaAway
from leaderq.kafka.clients.kafka_python_producer import Sender
from leaderq.kafka.clients.producer import Message
from leaderq.kafka.consuming.consumer_thread import Pump
from leaderq.kafka.dead_letters.format import Letter, shortened
from leaderq.kafka.record import Deserializer, Partition, Record, deserialized
from leaderq.kafka.stores.offset_store import OffsetStore
from leaderq.kafka.stores.transaction_offsets import TransactionOffsets
from leaderq.term import Term

if TYPE_CHECKING:
    from leaderq.kafka.career import KafkaLeaderCareer

log = logging.getLogger(__name__)

_MAX_LETTER_BYTES = 64 * 1024 * 1024
_SEND_S = 10.0
_PAUSE_S = 1.0


class CareerDesk:
    """See :class:`~leaderq.kafka.handling.desk.Desk`."""

    def __init__(
        self,
        career: KafkaLeaderCareer,
        pump: Pump,
        store: OffsetStore,
        *,
        key: Deserializer | None,
        value: Deserializer | None,
    ) -> None:
        self._career = career
        self._pump = pump
        self._store = store
        self._key, self._value = key, value
        # The broker decides what is too large for a dead letter: a topic may take more than is
        # usual.
        self._sender = Sender(career.settings.kafka, career.settings.kafka_security, max_message_bytes=_MAX_LETTER_BYTES)
        self.undoes = store.undoes
        self.decodes = key is not None or value is not None

    def decode(self, record: Record) -> Record:
        """The record as ``handle`` shall see it."""
        return deserialized(record, self._key, self._value)

    def handle(self, records: Sequence[Record], term: Term) -> None:
        """The user's code."""
        self._career.handle(records, term)

    def save(self, term: Term, ends: Mapping[Partition, int]) -> None:
        """Save, and wait for it; raises also :class:`~leaderq.kafka.clients.consumer.BatchLost`."""
        self._pump.save(term, ends)

    def undo(self) -> None:
        """Drop what was to go with the offsets."""
        self._store.undo()

    def bury(self, term: Term, topic: str, letter: Letter) -> None:
        """Send the letter: in the open transaction where there is one, else by itself.

        One that is too large with all its headers is sent without those that a replay can do
        without.
        """
        try:
            self._send(term, _message(topic, letter))
        except MessageTooLarge as exc:
            log.warning("a dead letter is sent without the error's text: %s", exc)
            self._send(term, _message(topic, shortened(letter)))

    def _send(self, term: Term, message: Message) -> None:
        """Send until Kafka has it: while Kafka is away the term goes on."""
        if isinstance(self._store, TransactionOffsets):
            self._store.produce(message)
            return
        while True:
            term.check()
            try:
                self._sender.send([message], _SEND_S)
                return
            except (KafkaAway, ServersUnreachable) as exc:
                log.warning("a dead letter waits for Kafka: %s", exc)
                if not term.wait(_PAUSE_S):
                    raise BatchLost(
                        "the term ends before a dead letter could be sent; its record is handed out again"
                    ) from exc

    def close(self) -> None:
        """Close the sender's connection, if it has one."""
        self._sender.close()


def _message(topic: str, letter: Letter) -> Message:
    # kafka-python sends no record that has neither key nor value; its headers tell where the real
    # one is.
    value = b"" if letter.key is None and letter.value is None else letter.value
    return Message(topic, value, letter.key, letter.headers, timestamp_ms=letter.timestamp_ms)
