"""Offsets and results in Redis, stored together by one script that compares the number of the term.

*Guarantees:* on one Redis server that keeps what it has acknowledged (``appendonly yes``,
``appendfsync always``), what :meth:`RedisOffsets.count` adds counts exactly once, and an older
leader changes nothing. *Not guaranteed:* anything of this with ``appendfsync everysec`` when the
machine crashes, or when a replica takes over: replication is asynchronous, so the newest commits
may be lost (their records are handled again, and count once), and so may the newest term's number:
then nothing but ZooKeeper's lease keeps an older leader out.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import redis

from leaderq.errors import KafkaFenced, LeaderqError
from leaderq.kafka import (
    ConsumerClient,
    DeliveryPromise,
    DoneAtOnce,
    EffectRefused,
    OffsetStore,
    Partition,
    StoreAway,
    StoreContext,
    require_handle_call,
    take_effect,
)
from leaderq.kafka.record import Offset, epoch_of
from leaderq.term import Term

FENCE = """
local newest = tonumber(redis.call('HGET', KEYS[1], 'term') or '0')
if newest > tonumber(ARGV[1]) then return newest end
redis.call('HSET', KEYS[1], 'term', ARGV[1])
return 0
"""
# Everything that could fail is looked at before anything is changed: a script is not rolled back.
COMMIT = """
local newest = tonumber(redis.call('HGET', KEYS[1], 'term') or '0')
if newest ~= tonumber(ARGV[1]) then return {'fenced', newest} end
if redis.call('HGET', KEYS[1], 'write') == ARGV[2] then return {'stored', 0} end
local counts = cjson.decode(ARGV[3])
for _, each in ipairs(counts) do
    local kind = redis.call('TYPE', each[1]).ok
    if kind ~= 'none' and kind ~= 'hash' then return {'refused', each[1] .. ' is a ' .. kind} end
    local held = kind == 'hash' and redis.call('HGET', each[1], each[2]) or '0'
    if not held:match('^-?%d%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?$') then
        return {'refused', each[2] .. ' in ' .. each[1] .. ' is no number to add to: ' .. held}
    end
end
for _, each in ipairs(counts) do redis.call('HINCRBY', each[1], each[2], each[3]) end
for where, at in pairs(cjson.decode(ARGV[4])) do redis.call('HSET', KEYS[1], where, at) end
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'write', ARGV[2]) end
return {'stored', 0}
"""


class RedisOffsets(OffsetStore):
    """Offsets in one hash of the Redis server at ``url``, with the counts of their records."""

    word = "redis"
    promises = DeliveryPromise.EXACTLY_ONCE, DeliveryPromise.AT_LEAST_ONCE
    remedy = "put back the career's hash in Redis from a backup"
    undoes = True

    def __init__(self, url: str) -> None:
        self._server = redis.Redis.from_url(url, socket_timeout=2.0, decode_responses=True)
        self._key = ""
        self._counts: list[tuple[str, str, str]] = []
        self._numbers = itertools.count(1)
        self._asked: tuple[Mapping[Partition, int], str] | None = None

    def attach(self, context: StoreContext) -> None:
        self._key = f"leaderq:{{{context.root}/{context.career}}}"

    def check(self, context: StoreContext) -> str:
        durable = self._try(self._server.config_get, "appendfsync").get("appendfsync")
        return f"Redis answers, appendfsync={durable}"

    # ---- in handle -------------------------------------------------------------------------------

    def count(self, key: str, field: str, by: int = 1) -> None:
        """Add ``by`` to a field of a hash, together with the offsets of the batch in hand."""
        require_handle_call("count()")
        added = key, field, str(int(by))
        take_effect(lambda: self._counts.append(added))

    def take_effects(self) -> list[Any]:
        taken, self._counts = self._counts, []
        return taken

    def undo(self) -> None:
        self._counts, self._asked = [], None

    # ---- on the consumer thread ------------------------------------------------------------------

    def fence(
        self, consumer: ConsumerClient, term: Term, allowed: Callable[[], None], timeout_s: float
    ) -> bool:
        term.check()
        newest = self._try(self._server.eval, FENCE, 1, self._key, term.number)
        if newest:
            raise KafkaFenced(f"{self._key} in Redis has been used in term {newest}")
        return consumer.join(allowed, timeout_s)

    def load(self, consumer: ConsumerClient, term: Term, timeout_s: float) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        for name, text in self._try(self._server.hgetall, self._key).items():
            if name not in ("term", "write"):
                topic, _, number = name.rpartition("-")
                found[Partition(topic, int(number))] = Offset(*map(int, text.split()))
        return found

    def commit(
        self, consumer: ConsumerClient, term: Term, offsets: Mapping[Partition, int]
    ) -> DoneAtOnce:
        if self._asked is None or self._asked[0] != offsets:
            self._asked = dict(offsets), f"{term.id}-{next(self._numbers)}"
        self._store(term, offsets, self._asked[1], self._counts)
        self.undo()
        return DoneAtOnce()

    def commit_positions(
        self, consumer: ConsumerClient, term: Term, offsets: Mapping[Partition, int]
    ) -> DoneAtOnce:
        self._store(term, offsets, "", [])
        return DoneAtOnce()

    def close(self) -> None:
        self.undo()

    def _store(
        self, term: Term, offsets: Mapping[Partition, int], write: str, counts: list[Any]
    ) -> None:
        places = {str(where): f"{int(at)} {epoch_of(at)}" for where, at in offsets.items()}
        texts = json.dumps(counts), json.dumps(places)
        answer, why = self._try(self._server.eval, COMMIT, 1, self._key, term.number, write, *texts)
        if answer == "fenced":
            raise KafkaFenced(f"{self._key} in Redis is used by term {why}")
        if answer == "refused":
            raise EffectRefused(LeaderqError(why))

    def _try(self, command: Callable[..., Any], *given: Any) -> Any:
        try:
            return command(*given)
        except (redis.ConnectionError, redis.TimeoutError) as exc:
            raise StoreAway(f"Redis does not answer: {exc}") from exc
