"""When the work is held up instead of passing over records: what the records need is away, or so
many in a row fail alike that they can hardly be to blame. For the career thread; pure but for what
it remembers.

A hold-up goes on within the term: the record is tried again after a back-off, as often as it
takes, and no attempt counts against it. It ends

* when something was handled;
* when the term ends or pauses: the record is handed out again;
* after :data:`LONGEST_S` without success: the error is raised, so that the term fails, and the
  next one may make its connections again in ``inaugurate``, or be led by a host that can reach
  what this one cannot. Nothing is passed over then either.
"""

from __future__ import annotations

from leaderq.kafka.handling.on_error import HoldUp, OnError, RaiseError
from leaderq.kafka.record import Record

LONGEST_S = 300.0


class HoldUps:
    """How long the work of one career has been held up, and which records in a row failed alike."""

    def __init__(self, policy: OnError) -> None:
        self._policy = policy
        self._since_s: float | None = None
        self._times = 0
        self._error: type[Exception] | None = None
        self._keys: set[object] = set()

    @property
    def is_held_up(self) -> bool:
        """Whether nothing was handled since the last hold-up began."""
        return self._since_s is not None

    def decision(self, now_s: float) -> HoldUp | RaiseError:
        """What to do now that the work is held up, once more or for the first time."""
        if self._since_s is None:
            self._since_s, self._times = now_s, 0
        self._times += 1
        since_s = now_s - self._since_s
        if since_s >= LONGEST_S:
            self._since_s = None
            return RaiseError()
        return HoldUp(self._policy.pause_s(self._times), since_s)

    def are_too_many(self, record: Record, error: Exception) -> bool:
        """Whether ``record`` would be one too many in a row to be passed over for such an error."""
        most = self._policy.most_in_a_row
        return most is not None and type(error) is self._error and len(self._keys | {_key(record)}) > most

    def passed_over(self, record: Record, error: Exception) -> None:
        """``record`` was skipped or dead-lettered."""
        if type(error) is not self._error:
            self._error, self._keys = type(error), set()
        if self._policy.most_in_a_row is not None:
            self._keys.add(_key(record))

    def handled(self) -> None:
        """Something was handled: nothing is held up, and no row goes on."""
        self._since_s = self._error = None
        self._keys = set()


def _key(record: Record) -> object:
    """Records with the same key count once; those without one each."""
    key = record.key
    return key if isinstance(key, bytes) else (record.topic, record.partition, record.offset)
