"""One term's transactional producer, and the thread that alone touches it.

States: none, open, fenced in; with or without an open :class:`Transaction`. Whatever fails so that
the producer cannot be trusted any more discards it; the next piece of work takes a new one, and
fences it in, if the term still allows that. Fencing a new one settles what the former one left
open, one way or the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leaderq.clock import now_s
from leaderq.errors import KafkaError, KafkaFenced
from leaderq.kafka.clients.drain import BatchLost, KafkaAway, Offsets, Saving
from leaderq.kafka.clients.producer import Message, TransactionalProducer
from leaderq.kafka.clients.saving import Background

log = logging.getLogger(__name__)

_FENCE_S = 2.0
_COMMIT_S = 2.0
_ABORT_S = 2.0
_CLOSE_S = 1.0


@dataclass(eq=False)
class Transaction:
    """Messages and offsets that belong together.

    ``in_doubt``: nobody waits for its commit any more, which may still happen. ``is_committed``: it
    did, whoever noticed.
    """

    messages: list[Message]
    offsets: Offsets
    began_s: float | None = None
    in_doubt: bool = False
    commit_asked: bool = False
    is_committed: bool = False


class Transacting:
    """Fences, commits and closes on a thread of its own; its methods only begin that."""

    def __init__(self, make: Callable[[], TransactionalProducer], transaction_timeout_s: float) -> None:
        self._make = make
        self._timeout_s = transaction_timeout_s
        self._background = Background("leaderq-transactions")
        self._allowed: Callable[[], None] = _never
        self._producer: TransactionalProducer | None = None
        self._is_fenced = False
        self._open: Transaction | None = None

    # ---- on the drain thread ----------------------------------------------------------------------------------------------------

    def opening(self) -> Saving:
        """Begin to connect a producer."""
        return self._background.save(self._open_producer)

    def fencing(self, allowed: Callable[[], None]) -> Saving:
        """Begin to fence; done once no transaction is open, neither of an earlier leader nor of
        this one.

        ``allowed`` raises if this process may not fence; asked right before, now and later.
        """
        self._allowed = allowed
        return self._background.save(self._fence)

    def committing(self, transaction: Transaction, group: Any) -> Saving:
        """Begin to commit, or go on with it after :class:`~leaderq.kafka.clients.drain.KafkaAway`."""
        return self._background.save(lambda: self._commit(transaction, group))

    def close(self) -> None:
        """Abort what is open and let the producer go, within about a second; never raises."""
        self._allowed = _never
        ended = self._background.save(self._end)
        self._background.close()
        try:
            ended.done(_CLOSE_S)
        except Exception:
            log.debug("closing a producer failed; it is dropped", exc_info=True)

    # ---- on the thread of its own -----------------------------------------------------------------------------------------------

    def _open_producer(self) -> None:
        self._opened()

    def _opened(self) -> TransactionalProducer:
        if self._producer is None:
            producer = self._make()
            producer.open()
            self._producer = producer
        return self._producer

    def _fence(self) -> None:
        if self._open is not None:
            self._discard()
        self._fenced()

    def _fenced(self) -> TransactionalProducer:
        producer = self._opened()
        if self._is_fenced:
            return producer
        self._allowed()
        try:
            self._is_fenced = producer.fence(_FENCE_S)
        except KafkaAway:
            raise
        except Exception:
            self._discard()
            raise
        if not self._is_fenced:
            raise KafkaAway("the broker has not fenced in the producer yet")
        return producer

    def _commit(self, transaction: Transaction, group: Any) -> None:
        if transaction.is_committed:
            return  # asked for again, since nobody had waited for the answer
        if self._open is not None and self._open is not transaction:
            self._discard()  # somebody gave up on that one
        if transaction.in_doubt:
            raise BatchLost("whether the transaction was committed is not known")
        producer = self._fenced()
        if transaction.began_s is None:
            self._fill(producer, transaction)
        transaction.commit_asked = True
        try:
            producer.commit(transaction.offsets, group, _COMMIT_S)
        except KafkaAway:
            raise
        except KafkaFenced as exc:
            self._fenced_out(transaction, exc)
            raise
        except BatchLost:
            self._discard()
            raise
        except Exception:
            self._abort()
            raise
        transaction.is_committed = True
        self._open = None

    def _fill(self, producer: TransactionalProducer, transaction: Transaction) -> None:
        try:
            self._open, transaction.began_s = transaction, now_s()
            producer.begin()
            for message in transaction.messages:
                producer.produce(message)
        except KafkaFenced:
            self._discard()
            raise
        except Exception:
            self._abort()
            raise

    def _fenced_out(self, transaction: Transaction, exc: KafkaFenced) -> None:
        """A transaction open for too long is aborted by the broker, and the producer refused,
        without any successor.
        """
        is_late = transaction.began_s is not None and now_s() - transaction.began_s > self._timeout_s
        self._discard()
        if is_late:
            self._allowed()  # a leader that was frozen finds out here that its term is over
            raise BatchLost(f"the broker gave up a transaction that was open for more than {self._timeout_s:g} s") from exc

    def _abort(self) -> None:
        """Nothing of the open transaction was committed: make sure that nothing will be."""
        producer, transaction = self._producer, self._open
        if producer is None or transaction is None:
            return
        try:
            producer.abort(_ABORT_S)
        except Exception as exc:  # noqa: BLE001  (another producer takes its place, which aborts it too)
            log.debug("a transaction could not be aborted (%s); the next producer does it", exc)
            self._discard()
        transaction.commit_asked = transaction.in_doubt = False
        self._open = transaction.began_s = None

    def _discard(self) -> None:
        """Trust this producer no more."""
        if self._open is not None:
            self._open.in_doubt = self._open.commit_asked
            self._open.began_s = None
        producer, self._producer, self._open, self._is_fenced = self._producer, None, None, False
        if producer is not None:
            producer.close()

    def _end(self) -> None:
        try:
            if self._open is not None and self._producer is not None:
                self._producer.abort(_CLOSE_S / 2)
        finally:
            self._discard()


def _never() -> None:
    raise KafkaError("this producer may not be fenced in: no term lasts")
