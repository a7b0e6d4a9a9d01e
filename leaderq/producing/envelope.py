"""A request as it lies in the journal: version, moment after which it is worthless, and the request's own bytes.

Layout: one byte 0x01, a big-endian double (seconds since the epoch, 0 for never), the request. It is wall-clock time,
since it must mean the same after a restart of the host.
"""

from __future__ import annotations

from struct import Struct

from leaderq.errors import CorruptRecord

_HEADER = Struct(">Bd")
_VERSION = 1
OVERHEAD_BYTES = _HEADER.size


def sealed(request: bytes, expires_at: float) -> bytes:
    """The bytes for the journal."""
    return _HEADER.pack(_VERSION, expires_at) + request


def opened(payload: bytes) -> tuple[bytes, float]:
    """The request's bytes and the moment they expire.

    :raises CorruptRecord: somebody else's bytes.
    """
    if len(payload) < _HEADER.size or payload[0] != _VERSION:
        raise CorruptRecord(f"a record of {len(payload)} bytes in the journal was not written by a BufferedProducer")
    _, expires_at = _HEADER.unpack_from(payload)
    return payload[_HEADER.size :], expires_at
