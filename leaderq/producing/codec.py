"""Requests as bytes, for the journal and for measuring them."""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any, Final, Protocol

from leaderq.base.arguments import bytes_of
from leaderq.errors import ConfigurationError, CorruptRecord

_PLAIN: Final = (bytes, str, int, float, tuple, list, dict)
_PROTOCOL: Final = 5


class Codec(Protocol):
    """Turns requests into bytes and back; ``deserialize(serialize(request))`` must equal the
    request, even in another process. Its ``name``, or else the name of its class, tells whether a
    journal's segment was written with this codec.
    """

    def serialize(self, value: Any) -> bytes:
        """Return ``value`` as bytes."""

    def deserialize(self, data: bytes) -> Any:
        """Return the value of ``data``."""


def serialized(codec: Codec, request: Any) -> bytes:
    """Return ``request`` as bytes.

    :raises ConfigurationError: the codec returned something else.
    """
    returned: Any = codec.serialize(request)  # of the user
    if (data := bytes_of(returned)) is None:
        what = f"the codec's serialize returned a {type(returned).__name__} for a request"
        raise ConfigurationError(f"{what}; it must return bytes")
    return data


def codec_name(codec: Codec) -> str:
    """The name under which a journal remembers a codec: the codec's ``name``, or the name of its
    class.
    """
    return str(getattr(codec, "name", None) or type(codec).__qualname__)


class PlainCodec:
    """Python's own pickle, for plain values: ``None``, ``bool``, ``int``, ``float``, ``str``,
    ``bytes`` and tuples, lists, sets and dicts of these.

    *Guarantees:* it writes no class, and reads none, so reading cannot run code. A subclass (a
    named tuple) comes back as the plain type.
    """

    def serialize(self, value: Any) -> bytes:
        """Return the value as bytes.

        :raises ConfigurationError: the value has a type that is not plain; the error says what to
            do about it.
        """
        out = BytesIO()
        _Writer(out, _PROTOCOL).dump(value)
        return out.getvalue()

    def deserialize(self, data: bytes) -> Any:
        """Return the value that was serialised as ``data``.

        :raises CorruptRecord: :meth:`serialize` did not make these bytes.
        """
        stream = BytesIO(data)
        try:
            value = _Reader(stream).load()
        except Exception as exc:  # pickle raises all kinds of errors for damaged data
            begins = f"{len(data)} bytes beginning {data[:8]!r}"
            raise CorruptRecord(f"{begins} are not a plain value") from exc
        if stream.tell() != len(data):
            begins = f"{len(data)} bytes beginning {data[:8]!r}"
            more = len(data) - stream.tell()
            raise CorruptRecord(f"{begins} hold a plain value and {more} bytes more")
        return value


PLAIN: Final = PlainCodec()
_SURE: Final = frozenset((bytes, str, int, float, bool, type(None)))


def is_sure(codec: Codec, request: Any) -> bool:
    """Whether this codec can certainly serialise this request at any time; the codec is not asked.
    Such a request need not be serialised before it has to be written.
    """
    if codec is not PLAIN:
        return False
    if type(request) is tuple:
        return _SURE.issuperset(map(type, request))
    return type(request) in _SURE


class _Writer(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        for plain in _PLAIN:
            if isinstance(value, plain):
                return plain, (_plain_part(value, plain),)
        if value in _PLAIN:
            return NotImplemented  # the constructor of one of these
        if isinstance(value, memoryview):
            return bytes, (bytes(value),)
        raise ConfigurationError(
            f"a request of type {type(value).__name__} cannot be kept as bytes; send bytes, str, "
            "numbers or tuples, lists and dicts of these, or give BufferedProducer a codec with "
            "serialize and deserialize"
        )


def _plain_part(value: Any, plain: type) -> Any:
    if plain is str:
        return str.__str__(value)  # str() of an Enum is its name
    return list(value) if plain is tuple else plain(value)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        for plain in _PLAIN:
            if (module, name) == ("builtins", plain.__name__):
                return plain
        raise pickle.UnpicklingError(f"{module}.{name} is not a plain type")
