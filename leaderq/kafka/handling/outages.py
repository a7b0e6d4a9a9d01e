"""Whether an error tells of an *outage* of something that the record needs, or of the record. Pure.

First the numbers that the error itself holds decide,

======================  ============================================================================
an HTTP status          408, 425, 429 and 5xx are outages; other 3xx and 4xx are about the record
SQLSTATE                connection lost (08), fail-over (25006), login and privileges (28, 42501),
                        serialization and deadlock (40), a database, schema, table, column or
                        function that is not there (3D000, 3F000, 42P01, 42703, 42883: the order of
                        a deployment), resources (53), a lock (55P03), shutdown and time-outs (57),
                        the system (58); all others are about the record
SQLite's error codes    busy, locked, full, read-only, cannot open, damaged; all others are not
gRPC's status           those that stand for 429, 499 and 5xx, and ``ABORTED``; a message that is
                        larger than the client takes is about the record
Kafka's error codes     those that a client may retry, and what librdkafka tells of brokers
others                  AWS (throttled, login expired), SMTP (4xx), MongoDB (labels, time-outs)
======================  ============================================================================

then its class,

* an ``OSError`` is an outage, except what a path in the record causes (missing files, invalid
  names) and what is a ``ValueError`` too (invalid URLs, what is not JSON);
* so is an error whose class, or a base of it, has a name in :data:`OUTAGES`, unless a nearer one
  has a name in :data:`ABOUT_RECORDS`;
* ``MemoryError`` is an outage; so is what leaderq raises about servers, and where a queue, a buffer
  or a sink of its own takes nothing now;

then the error that it was raised *from*. A group of errors (``asyncio.TaskGroup``) is an outage if
all its leaves are. Everything else is about the record.
"""

from __future__ import annotations

import errno
import re
import ssl
from contextlib import suppress
from typing import Any

from kafka.errors import for_code

from leaderq.errors import (
    BufferFull,
    ConnectionLost,
    JournalClosed,
    JournalFailed,
    JournalFull,
    JournalSlow,
    KafkaFenced,
    ProducerClosed,
    QueueClosed,
    QueueFull,
    ServersUnreachable,
    SessionClosed,
    SessionExpired,
    SinkAway,
    SinkBroken,
    leaves,
)
from leaderq.kafka.clients.consumer import BatchLost, KafkaAway, MembershipLost

ABOUT_SERVERS = (
    KafkaFenced,
    KafkaAway,
    MembershipLost,
    BatchLost,
    ServersUnreachable,
    ConnectionLost,
    SessionExpired,
    SessionClosed,
)
"""What leaderq raises about servers. A handler's own call may have raised it, and the handler
something else from it.
"""
_TAKES_NOTHING = (
    BufferFull,
    JournalClosed,
    JournalFailed,
    JournalFull,
    JournalSlow,
    ProducerClosed,
    QueueClosed,
    QueueFull,
    SinkAway,
    SinkBroken,
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


OUTAGES = _names(
    # PEP 249, and what most libraries call it
    "OperationalError InterfaceError TimeoutError ConnectionError NetworkError TimeoutException"
    " SSLError ProxyError TransportError"
    # http.client, urllib3, httpx, aiohttp
    " IncompleteRead BadStatusLine MaxRetryError ProtocolError RemoteProtocolError"
    " ClientConnectionError ClientPayloadError"
    # pymongo; pika; botocore; redis; confluent-kafka's full queue
    " ConnectionFailure AMQPConnectionError ChannelWrongStateError HTTPClientError"
    " NoCredentialsError CredentialRetrievalError TokenRetrievalError ReadOnlyError"
    " OutOfMemoryError ClusterDownError MasterDownError TryAgainError BufferError"
)
"""What libraries call their errors about a server that cannot be reached or does not work now."""
ABOUT_RECORDS = frozenset({"LocalProtocolError", "UnsupportedProtocol", "InvalidURL"})
"""What they call errors about a request, though a base of these is one of :data:`OUTAGES`."""
_DB_API = frozenset({"OperationalError", "InterfaceError"})
_DEPTH = 10  # of causes, which may form a circle
_PATHS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)
_PATH_ERRNOS = frozenset({errno.ENAMETOOLONG, errno.ENOTEMPTY, errno.ELOOP})

_STATUS_NAMES = ("status_code", "http_status_code", "http_status", "status", "code")
_HTTP_OUTAGES = frozenset({408, 425, 429})
_AWS_OUTAGES = re.compile(
    "Throttl|TooManyRequests|SlowDown|ThroughputExceeded|RequestLimitExceeded|RequestTimeout"
    "|ExpiredToken|TransactionInProgress"
)
_SQL_OUTAGES = re.compile("08|25006|28|40(?!002)|42(501|P01|703|883)|3D000|3F000|53|55P03|57|58")
_SQLITE_OUTAGES = frozenset({3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 17, 26})
_GRPC_OUTAGES = _names(
    "CANCELLED UNKNOWN DEADLINE_EXCEEDED RESOURCE_EXHAUSTED ABORTED UNIMPLEMENTED INTERNAL"
    " UNAVAILABLE DATA_LOSS"
)
_KAFKA_OUTAGES = _names(
    "_TRANSPORT _ALL_BROKERS_DOWN _TIMED_OUT _TIMED_OUT_QUEUE _MSG_TIMED_OUT _QUEUE_FULL _RESOLVE"
    " _AUTHENTICATION _SSL _WAIT_COORD _WAIT_CACHE _RETRY _DESTROY _PURGE_QUEUE"
    " _PURGE_INFLIGHT"
)


def is_outage(error: BaseException) -> bool:
    return _judged(error, 0) is True


def _judged(error: BaseException, depth: int) -> bool | None:
    """Whether ``error`` is an outage; ``None`` if nothing tells that."""
    found = leaves(error)
    if found != [error]:
        return all(map(is_outage, found))
    own = _by_numbers(error)
    if own is not None:
        return own
    own, cause = _by_class(error), error.__cause__
    if cause is None or depth == _DEPTH or (own is not None and not _wraps_a_drivers(error)):
        return own
    inner = _judged(cause, depth + 1)
    return own if inner is None else inner


def _wraps_a_drivers(error: BaseException) -> bool:
    """Whether the error may be a class of SQLAlchemy's or Django's around the driver's error, which
    is then its cause.
    """
    return not _DB_API.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def _by_numbers(error: BaseException) -> bool | None:
    for judge in _NUMBERS:
        with suppress(Exception):  # attributes of these names that mean something else
            if (answer := judge(error)) is not None:
                return answer
    return None


def _by_class(error: BaseException) -> bool | None:
    # A refused certificate is a ValueError too.
    if isinstance(error, (MemoryError, ssl.SSLError, *ABOUT_SERVERS, *_TAKES_NOTHING)):
        return True
    number = _asked(error, "errno")
    if isinstance(error, _PATHS) or (isinstance(number, int) and number in _PATH_ERRNOS):
        return False
    if isinstance(error, ValueError):
        return None
    if isinstance(error, OSError):
        return True
    for kind in type(error).__mro__:
        if kind.__name__ in ABOUT_RECORDS:
            return False
        if kind.__name__ in OUTAGES:
            return True
    return None


def _asked(error: Any, name: str) -> Any:
    """Return an attribute; ``None`` if there is none, or if reading it raises, as a library's
    property may.
    """
    try:
        return getattr(error, name, None)
    except Exception:  # noqa: BLE001
        return None


def _http(error: BaseException) -> bool | None:
    if any(kind.__name__ == "HttpProcessingError" for kind in type(error.__cause__).__mro__):
        return True  # aiohttp puts 400 where the answer was not HTTP
    response = _asked(error, "response")
    for asked in (response, error):
        for name in _STATUS_NAMES:
            status = _asked(asked, name)
            if isinstance(status, int) and 300 <= status <= 599:
                return status >= 500 or status in _HTTP_OUTAGES
    return None


def _aws(error: BaseException) -> bool | None:
    response = _asked(error, "response")
    if not isinstance(response, dict) or "Error" not in response:
        return None
    code = str(response["Error"].get("Code"))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return bool(_AWS_OUTAGES.search(code)) or status >= 500 or status in _HTTP_OUTAGES


def _sql(error: BaseException) -> bool | None:
    state = _asked(error, "sqlstate") or _asked(error, "pgcode")
    if not isinstance(state, str) or len(state) != 5 or state == "HY000":  # which says nothing
        return None
    return bool(_SQL_OUTAGES.match(state))


def _sqlite(error: BaseException) -> bool | None:
    code = _asked(error, "sqlite_errorcode")
    return code & 0xFF in _SQLITE_OUTAGES if isinstance(code, int) else None


def _grpc(error: BaseException) -> bool | None:
    if not callable(code := _asked(error, "code")) or not callable(_asked(error, "details")):
        return None
    if "larger than max" in str(error.details()):  # type: ignore[attr-defined]
        return False
    return getattr(code(), "name", None) in _GRPC_OUTAGES


def _kafka(error: BaseException) -> bool | None:
    """Judge an error of kafka-python (by its class) or confluent-kafka (by the error within it)."""
    if _asked(error, "retriable") is True:
        return True
    within = error.args[0] if error.args else None
    name, code = _asked(within, "name"), _asked(within, "code")
    if not callable(name) or not callable(code) or not callable(_asked(within, "retriable")):
        return None
    return name() in _KAFKA_OUTAGES or (code() > 0 and bool(for_code(code()).retriable))


def _smtp(error: BaseException) -> bool | None:
    code = _asked(error, "smtp_code")
    return code < 500 if isinstance(code, int) else None


def _mongo(error: BaseException) -> bool | None:
    has_label = _asked(error, "has_error_label")
    if not callable(has_label):
        return None
    labels = "TransientTransactionError", "RetryableWriteError"
    return True if _asked(error, "timeout") is True or any(map(has_label, labels)) else None


_NUMBERS = (_aws, _grpc, _kafka, _http, _sql, _sqlite, _smtp, _mongo)
