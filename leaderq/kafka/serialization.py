"""What keys and values are in ``handle`` and in ``produce``: bytes, or what a serialiser makes of
them.

A serialiser is ``"json"``, a function, or a class of confluent-kafka (``AvroDeserializer``), which
is also given its ``SerializationContext``: topic, field and headers. ``None`` stays ``None``: a
record without a key, or a tombstone, has no bytes to be read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

from leaderq.engine.serializers import JSON
from leaderq.kafka.clients.producer import Message
from leaderq.kafka.record import Record

Deserializer = Callable[[bytes], Any] | Literal["json"]
Serializer = Callable[[Any], bytes | None] | Literal["json"]

_Headers = Sequence[tuple[str, bytes]]
_InContext = Callable[[Any, str, _Headers], Any]


def decoder(
    key: Deserializer | None, value: Deserializer | None
) -> Callable[[Record], Record] | None:
    """Return the function that turns a raw record into the one for ``handle``; ``None``: the raw
    record is handed over. The function raises what the deserialisers raise.
    """
    changes = _changes(key, value, JSON.deserialize)
    if changes is None:
        return None
    return lambda record: record.replace(**changes(record, record.headers))


def encoder(
    key: Serializer | None, value: Serializer | None
) -> Callable[[Message], Message] | None:
    """Return the function that turns what ``produce`` is given into the message to send; ``None``:
    the message is sent as it is.
    """
    changes = _changes(key, value, JSON.serialize)
    if changes is None:
        return None

    def encode(message: Message) -> Message:
        headers = list(message.headers)  # a serialiser may add one
        return message._replace(headers=headers, **changes(message, headers))

    return encode


def _changes(key: Any, value: Any, of_json: Any) -> Callable[[Any, _Headers], Any] | None:
    """Return the function that returns new keys and values of records or messages, by name."""
    found = {"key": _in_context(key, of_json, "KEY"), "value": _in_context(value, of_json, "VALUE")}
    functions = [(name, function) for name, function in found.items() if function is not None]
    if not functions:
        return None
    return lambda row, headers: {
        name: function(data, row.topic, headers)
        for name, function in functions
        if (data := getattr(row, name)) is not None
    }


def _in_context(given: Any, of_json: Any, field: str) -> _InContext | None:
    if given is None:
        return None
    function = of_json if given == "json" else given
    confluent: Any = sys.modules.get("confluent_kafka.serialization")
    if confluent is None or not isinstance(
        function, (confluent.Serializer, confluent.Deserializer)
    ):
        return lambda data, _topic, _headers: function(data)
    name = getattr(confluent.MessageField, field)
    context = confluent.SerializationContext

    def call(data: Any, topic: str, headers: _Headers) -> Any:
        own = headers if isinstance(headers, list) else list(headers)
        return function(data, context(topic, name, own))

    return call
