"""Which errors of the drivers that people use are an outage, and which are about the record.

Each error is made by its library: against a local port that is closed or answers rudely, or by the
library's own constructor where it would take a server that we cannot have.
"""

from __future__ import annotations

import asyncio
import smtplib
import socket
import socketserver
import sqlite3
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from fake_career import A, FakeCareer, a_batch, a_handler, a_record, failing_at, open_term

from leaderq.errors import (
    BufferFull,
    ConnectionLost,
    Deposed,
    QueueClosed,
    QueueFull,
    Reason,
    ServersUnreachable,
    SinkAway,
    SinkBroken,
)
from leaderq.kafka import KafkaAway, PoisonRecord, dead_letter
from leaderq.kafka.handling.on_error import OnError
from leaderq.kafka.handling.outages import is_outage

Make = Callable[[], object]
OUTAGES: dict[str, Make] = {}
ABOUT_RECORDS: dict[str, Make] = {}


def lib(name: str) -> Any:
    return pytest.importorskip(name, reason=f"needs {name}: pip install leaderq[errors]")


def error(module: str, kind: str, *words: Any) -> Make:
    """One that is made by hand, as its library makes it."""
    return lambda: getattr(lib(module), kind)(*words)


def raised(make: Make) -> BaseException:
    try:
        made = make()
    except Exception as exc:
        return exc
    assert isinstance(made, Exception), f"nothing was raised, but {made!r} returned"
    return made


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A port where each request gets ``answer``; then the connection is closed."""

    class Answer(socketserver.StreamRequestHandler):
        timeout = 5

        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(65536)
                self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def http(status: int, body: bytes = b"{}") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Content-Type: application/json\r\n\r\n" + body


CUT_OFF = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100\r\n\r\nshort"
NONSENSE = b"\x00\x01\x02 this is not HTTP\r\n\r\n"
ROUND_AND_ROUND = (
    b"HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"
)


def since_311(make: Make) -> Make:
    """Codes of errors of sqlite3, and task groups, came with Python 3.11."""
    return make if sys.version_info >= (3, 11) else partial(pytest.skip, "not in this Python")


# -- HTTP


def by_requests(url: str, **more: Any) -> object:
    answer = lib("requests").get(url, timeout=5, **more)
    answer.raise_for_status()
    return answer.json()


def by_httpx(url: str, **more: Any) -> object:
    answer = lib("httpx").get(url, timeout=5, trust_env=False, follow_redirects=True, **more)
    answer.raise_for_status()
    return answer.json()


def by_urllib3(url: str, **more: Any) -> object:
    with lib("urllib3").PoolManager() as pool:
        return pool.request("GET", url, timeout=5, **{"retries": 1, **more}).data


def by_urllib(url: str) -> object:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read()
    except urllib.error.HTTPError as exc:
        exc.close()
        raise


def by_aiohttp(url: str) -> object:
    aiohttp = lib("aiohttp")

    async def get() -> object:
        limit = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as answer:
            answer.raise_for_status()
            return await answer.json()

    return asyncio.run(get())


def told(get: Callable[..., object], answer: bytes, **more: Any) -> Make:
    def make() -> object:
        with answering(answer) as port:
            return get(f"http://127.0.0.1:{port}/", **more)

    return make


def refused(get: Callable[..., object]) -> Make:
    return lambda: get(f"http://127.0.0.1:{closed_port()}/")


for get in (by_requests, by_httpx, by_urllib3, by_urllib, by_aiohttp):
    name = get.__name__[3:]
    OUTAGES |= {
        f"{name}: connection refused": refused(get),
        f"{name}: no answer": told(get, b""),
        f"{name}: answer cut off": told(get, CUT_OFF),
    }
for get in (by_requests, by_httpx, by_urllib, by_aiohttp):
    name = get.__name__[3:]
    OUTAGES |= {f"{name}: {each}": told(get, http(each)) for each in (408, 425, 429, 500, 503)}
    ABOUT_RECORDS |= {f"{name}: {each}": told(get, http(each)) for each in (400, 404, 422)}
for get in (by_requests, by_httpx, by_aiohttp):
    name = get.__name__[3:]
    OUTAGES |= {f"{name}: not HTTP": told(get, NONSENSE)}
    ABOUT_RECORDS |= {
        f"{name}: not JSON": told(get, http(200, b"no")),
        f"{name}: redirected without end": told(get, ROUND_AND_ROUND),
        f"{name}: invalid URL": partial(get, "http://"),
    }
ABOUT_RECORDS |= {
    "requests: no scheme": partial(by_requests, "example.org"),
    "httpx: unknown scheme": partial(by_httpx, "gopher://127.0.0.1"),
    "httpx: invalid header": told(by_httpx, b"", headers={"a": "b\nc"}),
}


def patiently(url: str) -> object:
    return by_urllib3(url, retries=lib("urllib3").Retry(1, status_forcelist=[503]))


OUTAGES["urllib3: 503 again and again"] = told(patiently, http(503))


# -- databases


STATES = """
    08006 connection failure, 25006 read only after a fail-over, 28P01 password,
    40001 serialization failure, 40P01 deadlock, 42501 no privilege, 42P01 no such table,
    53300 too many connections, 55P03 lock not available, 57014 statement timeout,
    57P03 starting up, 58030 input or output
"""
RECORDS_STATES = """
    22P02 invalid text, 22001 too long, 23505 unique, 23503 foreign key, 42601 syntax,
    54000 too complex, P0001 raised by a trigger
"""
for told_of, states in ((OUTAGES, STATES), (ABOUT_RECORDS, RECORDS_STATES)):
    for state, what in (each.strip().split(" ", 1) for each in states.split(",")):
        said = {"C": state, "M": "as the server says it", "S": "ERROR", "V": "ERROR"}
        told_of[f"psycopg: {what}"] = lambda state=state: lib("psycopg").errors.lookup(state)("x")
        told_of[f"asyncpg: {what}"] = lambda said=said: lib("asyncpg").PostgresError.new(said)
OUTAGES |= {
    "psycopg: connection refused": lambda: lib("psycopg").connect(
        f"host=127.0.0.1 port={closed_port()} user=x connect_timeout=5"
    ),
    "asyncpg: connection closed": error("asyncpg", "InterfaceError", "connection is closed"),
}
ABOUT_RECORDS["asyncpg: argument of a wrong type"] = error(
    "asyncpg.exceptions", "DataError", "invalid input for query argument $1: 'x'"
)


def in_sqlite(*statements: str, path: str = ":memory:", **more: Any) -> object:
    with closing(sqlite3.connect(path, timeout=0, **more)) as connection:
        for each in statements:
            connection.execute(each).fetchall()
    return None


def _locked() -> object:
    name = f"file:{id(object())}?mode=memory&cache=shared"
    with closing(sqlite3.connect(name, uri=True)) as holder:
        holder.execute("CREATE TABLE t (a)")
        holder.execute("BEGIN EXCLUSIVE")
        return in_sqlite("INSERT INTO t VALUES (1)", path=name, uri=True)


FULL = ("PRAGMA max_page_count=2", "CREATE TABLE t (a)", "INSERT INTO t VALUES (zeroblob(99999))")
OUTAGES |= {
    "sqlite3: locked": _locked,
    "sqlite3: full": partial(in_sqlite, *FULL),
    "sqlite3: cannot open": partial(in_sqlite, path="/no/such/folder/x"),
}
ABOUT_RECORDS |= {
    "sqlite3: malformed JSON": since_311(partial(in_sqlite, "SELECT json('no')")),
    "sqlite3: unique": partial(
        in_sqlite, "CREATE TABLE t (a UNIQUE)", *["INSERT INTO t VALUES (1)"] * 2
    ),
}


def by_sqlalchemy(statement: str, url: str = "sqlite://") -> object:
    sqlalchemy = lib("sqlalchemy")
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        return connection.execute(sqlalchemy.text(statement))


OUTAGES["SQLAlchemy: connection refused"] = lambda: by_sqlalchemy(
    "SELECT 1", f"postgresql+psycopg://x@127.0.0.1:{closed_port()}/x"
)
ABOUT_RECORDS["SQLAlchemy: malformed JSON"] = since_311(partial(by_sqlalchemy, "SELECT json('no')"))


mongo = partial(error, "pymongo.errors")
OUTAGES |= {
    "pymongo: connection lost": mongo("AutoReconnect", "connection closed"),
    "pymongo: time is up": mongo("ExecutionTimeout", "operation exceeded time limit", 50),
    "pymongo: to be tried again": mongo(
        "OperationFailure", "x", 112, {"errorLabels": ["TransientTransactionError"]}
    ),
}
ABOUT_RECORDS |= {
    "pymongo: duplicate key": mongo("DuplicateKeyError", "E11000", 11000),
    "pymongo: too large": mongo("DocumentTooLarge", "BSON document too large"),
}


def by_redis(url: str, value: Any = "b") -> object:
    library = lib("redis")
    never = library.retry.Retry(library.backoff.NoBackoff(), 0)
    plain = {"protocol": 2, "driver_info": None, "retry": never}
    with library.Redis.from_url(url.replace("http", "redis"), **plain) as client:
        return client.set("a", value)


redis = partial(told, by_redis)
OUTAGES |= {
    "redis: connection refused": refused(by_redis),
    "redis: no answer": redis(b""),
    "redis: read only": redis(b"-READONLY You can't write against a read only replica.\r\n"),
    "redis: loading": redis(b"-LOADING Redis is loading the dataset in memory\r\n"),
    "redis: out of memory": redis(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"),
}
ABOUT_RECORDS |= {
    "redis: wrong type": redis(b"-WRONGTYPE Operation against a key holding a list\r\n"),
    "redis: what is no value": redis(b"", value={}),
}


# -- brokers and clouds


pika = partial(error, "pika.exceptions")
OUTAGES |= {
    "pika: connection closed": pika("ConnectionClosedByBroker", 320, "CONNECTION_FORCED"),
    "pika: stream lost": pika("StreamLostError", "reset by peer"),
    "pika: channel is closed": pika("ChannelWrongStateError", "Channel is closed."),
}
ABOUT_RECORDS |= {
    "pika: unroutable": pika("UnroutableError", []),
    "pika: precondition": pika("ChannelClosedByBroker", 406, "PRECONDITION_FAILED"),
}


def by_botocore(url: str) -> object:
    session = lib("botocore.session").get_session()
    config = lib("botocore.config").Config(
        retries={"max_attempts": 0}, connect_timeout=5, read_timeout=5
    )
    login = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "eu-west-1"}
    client = session.create_client("dynamodb", endpoint_url=url, config=config, **login)
    with closing(client):
        return client.get_item(TableName="orders", Key={"id": {"S": "1"}})


def aws(status: int, code: str) -> Make:
    return told(by_botocore, http(status, b'{"__type": "%s"}' % code.encode()))


OUTAGES |= {
    "botocore: connection refused": refused(by_botocore),
    "botocore: no answer": told(by_botocore, b""),
    "botocore: throttled": aws(400, "ThrottlingException"),
    "botocore: throughput": aws(400, "ProvisionedThroughputExceededException"),
    "botocore: 500": aws(500, "InternalServerError"),
    "botocore: no credentials": error("botocore.exceptions", "NoCredentialsError"),
}
ABOUT_RECORDS |= {
    "botocore: validation": aws(400, "ValidationException"),
    "botocore: condition": aws(400, "ConditionalCheckFailedException"),
}


def by_grpc(code: str) -> Make:
    """A call of a server that answers with this status; ``""``: with more than the client takes."""

    def serve(_request: bytes, context: Any) -> bytes:
        if code:
            context.abort(lib("grpc").StatusCode[code], "as the server says it")
        return bytes(5_000_000)

    def make() -> object:
        grpc = lib("grpc")
        server = grpc.server(futures.ThreadPoolExecutor(1))
        handler = grpc.method_handlers_generic_handler(
            "s", {"m": grpc.unary_unary_rpc_method_handler(serve)}
        )
        server.add_generic_rpc_handlers([handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            return _call(port)
        finally:
            server.stop(0).wait()

    return make


def _call(port: int) -> object:
    with lib("grpc").insecure_channel(f"127.0.0.1:{port}") as channel:
        return channel.unary_unary("/s/m")(b"", timeout=5)


GRPC = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED")
GRPC_RECORDS = ("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "")
OUTAGES |= {f"grpc: {code}": by_grpc(code) for code in GRPC}
OUTAGES["grpc: connection refused"] = lambda: _call(closed_port())
ABOUT_RECORDS |= {f"grpc: {code or 'answer too large'}": by_grpc(code) for code in GRPC_RECORDS}


def confluent(name: str) -> Make:
    def make() -> object:
        library = lib("confluent_kafka")
        return library.KafkaException(library.KafkaError(getattr(library.KafkaError, name)))

    return make


def _no_broker() -> object:
    settings = {"bootstrap.servers": f"127.0.0.1:{closed_port()}", "log_level": 0}
    return lib("confluent_kafka").Producer(settings).list_topics(timeout=0.3)


def by_registry(url: str) -> object:
    client = lib("confluent_kafka.schema_registry").SchemaRegistryClient
    return client({"url": url, "max.retries": 0}).get_schema(7)


OUTAGES |= {
    "confluent-kafka: no broker": _no_broker,
    "confluent-kafka: queue full": lambda: BufferError("Local: Queue full"),
    "confluent-kafka: message timed out": confluent("_MSG_TIMED_OUT"),
    "confluent-kafka: too few replicas": confluent("NOT_ENOUGH_REPLICAS"),
    "schema registry: 503": told(by_registry, http(503, b'{"error_code": 50301}')),
    "schema registry: connection refused": refused(by_registry),
}
ABOUT_RECORDS |= {
    "confluent-kafka: message too large": confluent("MSG_SIZE_TOO_LARGE"),
    "confluent-kafka: invalid": confluent("_INVALID_ARG"),
    "schema registry: 404": told(
        by_registry, http(404, b'{"error_code": 40403, "message": "Schema not found"}')
    ),
}
OUTAGES["smtplib: try again later"] = lambda: smtplib.SMTPResponseException(451, b"greylisted")
ABOUT_RECORDS["smtplib: no such mailbox"] = lambda: smtplib.SMTPDataError(550, b"no")


# -- what is inside


def chain(error: Exception, cause: BaseException) -> Make:
    error.__cause__ = cause
    return lambda: error


def task_group(*makes: Make) -> Make:
    async def work(make: Make) -> None:
        raise raised(make)

    async def all_at_once() -> None:
        async with asyncio.TaskGroup() as group:
            for each in makes:
                group.create_task(work(each))

    return since_311(lambda: asyncio.run(all_at_once()))


HTTP_422 = told(by_urllib, http(422))
OURS = [each("x") for each in (BufferFull, SinkAway, SinkBroken, QueueClosed, ConnectionLost)]
OUTAGES |= {f"leaderq: {type(each).__name__}": lambda each=each: each for each in OURS}
OUTAGES |= {
    "leaderq: a queue is full": lambda: QueueFull("q", capacity=1, waited_s=0.0),
    "leaderq: a cause": chain(RuntimeError(), ServersUnreachable("Kafka", "k:1", waited_s=1.0)),
    "leaderq: a cause of a consumer's": chain(RuntimeError(), KafkaAway("no answer")),
    "a cause": chain(RuntimeError("no ledger"), ConnectionRefusedError()),
    "a cause of a cause": lambda: chain(
        ValueError("x"), raised(chain(RuntimeError(), TimeoutError()))
    )(),
    "a task group": task_group(refused(by_urllib), refused(by_urllib)),
    "a cause in a task group": task_group(chain(KeyError(), ConnectionRefusedError())),
    "a group as a cause": lambda: chain(KeyError(), raised(task_group(refused(by_urllib))))(),
    "no memory": MemoryError,
}
ABOUT_RECORDS |= {
    "a task group, one of them about the record": task_group(refused(by_urllib), KeyError),
    "a cause about the record": lambda: chain(RuntimeError("no"), raised(HTTP_422))(),
    "a context is no cause": lambda: {}[0] if raised(refused(by_urllib)) else None,
}


@pytest.mark.parametrize("what", OUTAGES)
def test_an_outage(what):
    assert is_outage(found := raised(OUTAGES[what])), repr(found)


@pytest.mark.parametrize("what", ABOUT_RECORDS)
def test_the_fault_of_the_record(what):
    assert not is_outage(found := raised(ABOUT_RECORDS[what])), repr(found)


def _fail(*_: object) -> Any:
    raise KeyError("not asked for by anybody")


MEANT_OTHERWISE: list[dict[str, Any]] = [
    {"errno": ["x"]},
    {"errno": property(_fail)},
    {"response": {"Error": "no such order"}},
    {"response": {"Error": {}, "ResponseMetadata": {"HTTPStatusCode": "503"}}},
    {"code": _fail, "details": _fail},
    {"code": lambda: "x", "details": lambda _self, _what: ""},
    {"has_error_label": _fail},
    {"args": property(_fail)},
    {"args": (type("Within", (), dict.fromkeys(("name", "code", "retriable"), _fail))(),)},
    {"smtp_code": "451", "sqlstate": 8006, "sqlite_errorcode": "5"},
]


@pytest.mark.parametrize("attributes", MEANT_OTHERWISE, ids=lambda each: " ".join(each))
def test_an_error_whose_attributes_mean_something_else_is_judged_all_the_same(attributes):
    for base, is_away in ((ValueError, False), (ConnectionError, True)):
        odd = type("Odd", (base,), attributes)()
        assert is_outage(odd) is is_away


# -- what follows from it


def failing_as(make: Make) -> FakeCareer:
    career = FakeCareer()
    career.before_handle = failing_at([raised(make), raised(make)], names=True)
    return career


@pytest.mark.parametrize(
    ("on_error", "make", "letters"),
    [
        (dead_letter(), HTTP_422, 1),
        (dead_letter(), task_group(refused(by_urllib), refused(by_urllib)), 0),
        (dead_letter(is_outage=lambda error: error.code == 422), HTTP_422, 0),
        (dead_letter(is_outage=lambda error: error.code != 503), told(by_urllib, http(503)), 1),
        (dead_letter(except_=ValueError), task_group(chain(ValueError(), KeyError())), 0),
        (dead_letter(only=KeyError), task_group(chain(PoisonRecord(a_record()), KeyError())), 1),
    ],
)
def test_an_outage_holds_up_and_a_fault_of_the_record_makes_a_letter(
    on_error, make, letters, monkeypatch
):
    monkeypatch.setattr(OnError, "pause_s", lambda _self, _times: 0.001)
    career = failing_as(make)
    assert a_handler(career, on_error).work(a_batch(A=[0, 1, 2]), open_term(7))
    assert (career.committed, len(career.letters)) == ({A: 3}, letters)


def test_the_end_of_a_term_within_a_task_group_is_not_blamed_on_a_record():
    deposed = Deposed(term=7, reason=Reason.LEASE)
    career = failing_as(task_group(KeyError, lambda: deposed))
    with pytest.raises(Deposed):
        a_handler(career, dead_letter()).work(a_batch(A=[0, 1, 2]), open_term(7))
    assert career.letters == []
