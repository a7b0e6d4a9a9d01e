"""Keys and values with a type, and the page about them, with a stand-in for a registry."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from snippets import ROOT, blocks
from test_declaration import dressed

from leaderq.errors import ConfigurationError
from leaderq.kafka import KafkaLeaderCareer
from leaderq.kafka.clients.producer import Message
from leaderq.kafka.record import Record
from leaderq.kafka.serialization import decoder, encoder
from leaderq.testing import drive, records

RECORD = Record("t", 1, 2, 3, b"key", b'{"a": 1}', [("h", b"1")], 7)
PAGE: Path = ROOT / "docs" / "typed-records.rst"


class Registry(ThreadingHTTPServer):
    """``schemas``: what was registered, by id from 1."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.schemas: list[dict[str, Any]] = []
        self.subjects: list[str] = []

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        parts = path.partition("?")[0].strip("/").split("/")
        if method == "POST" and parts[0] == "subjects" and parts[2:] == ["versions"]:
            schema = json.loads(body)
            if schema not in self.schemas:
                self.schemas.append(schema)
            self.subjects.append(parts[1])
            return 200, {"id": self.schemas.index(schema) + 1, **schema}
        if method == "GET" and parts[:2] == ["schemas", "ids"]:
            return 200, self.schemas[int(parts[2]) - 1]
        return 404, {"error_code": 404, "message": f"{method} {path} is not known here"}


class _Answers(BaseHTTPRequestHandler):
    server: Registry

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        status, found = self.server.answer(self.command, self.path, body)
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Nothing: the tests say what was wrong."""


@pytest.fixture
def server():
    pytest.importorskip("confluent_kafka.schema_registry", reason="pip install leaderq[errors]")
    with Registry() as made:
        threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield made
        made.shutdown()


def shown(number: int, server: Registry | None = None) -> dict[str, Any]:
    text = blocks(PAGE, "python")[number]
    names: dict[str, Any] = {"__name__": "shown"}
    if server is not None:
        text = text.replace("http://registry:8081", f"http://127.0.0.1:{server.server_port}")
    exec(compile(text, str(PAGE), "exec", dont_inherit=True), names)
    return names


def test_key_and_value_are_read_where_they_are_there():
    assert decoder(None, None) is None
    read = decoder(bytes.decode, "json")
    assert read(RECORD) == RECORD.replace(key="key", value={"a": 1})
    assert read(RECORD).leader_epoch == 7
    empty = RECORD.replace(key=None, value=None)
    assert read(empty) == empty
    only_value = decoder(None, "json")
    assert only_value(RECORD).key == b"key"


def test_key_and_value_are_written_where_they_are_there():
    assert encoder(None, None) is None
    write = encoder(str.encode, "json")
    message = Message("t", {"a": "ä"}, "key", [("h", b"1")], 3, 4)
    assert write(message) == Message("t", '{"a":"ä"}'.encode(), b"key", [("h", b"1")], 3, 4)
    assert write(Message("t", None, "k")) == Message("t", None, b"k", [])


def test_json_goes_in_and_out_and_what_is_not_json_is_the_fault_of_its_record():
    values = [b'{"id": "a", "cents": 5}', b"?", b'{"id": "b", "cents": 7}']
    driven = drive(shown(0)["Invoices"](), records("orders", values))
    assert [message.value for message in driven.produced] == [
        b'{"order":"a","cents":5}',
        b'{"order":"b","cents":7}',
    ]
    assert [letter.offset for letter in driven.dead_letters] == [1]


def test_what_produce_cannot_serialise_is_the_fault_of_its_record():
    career = shown(0)["Invoices"]
    values = [b'{"id": "a", "cents": 5}', b'{"id": "b", "cents": 7}']

    def of(value: Any) -> bytes:
        if value["order"] == "a":
            raise TypeError("no bytes for this")
        return b"x"

    driven = drive(type("Odd", (career,), {"value_serializer": of})(), records("orders", values))
    assert [letter.offset for letter in driven.dead_letters] == [0]
    assert [message.value for message in driven.produced] == [b"x"]


def test_a_type_of_ones_own():
    given = records("orders", [(b"k", b'{"id": "a", "cents": 5}')])
    driven = drive(shown(1)["Doubled"](), given)
    (message,) = driven.produced
    assert (message.key, json.loads(message.value or b"")) == (b"k", {"id": "a", "cents": 10})


def test_avro_with_a_registry(server):
    page = shown(2, server)
    order = {"type": "record", "name": "Order", "fields": page["INVOICE"]["fields"]}
    order = json.loads(json.dumps(order).replace('"order"', '"id"'))
    write = encoder(None, page["AvroSerializer"](page["registry"], json.dumps(order)))
    value = write(Message("orders", {"id": "a", "cents": 5})).value
    assert value[:5] == b"\0\0\0\0\x01"
    driven = drive(page["AvroInvoices"](), records("orders", [(b"k", value), b"?", (None, None)]))
    assert (driven.error, [letter.offset for letter in driven.dead_letters]) == (None, [1, 2])
    read = decoder(None, page["AvroDeserializer"](page["registry"]))
    (message,) = driven.produced
    invoice = read(Record("invoices", 0, 0, 0, message.key, message.value))
    assert (invoice.key, invoice.value) == (b"k", {"order": "a", "cents": 5})
    assert server.subjects == ["orders-value", "invoices-value"]


def test_protobuf_with_a_registry(server):
    page = shown(3, server)
    money = page["Money"]
    write = encoder(None, page["Payments"].value_serializer)
    value = write(Message("payments", money(currency_code="EUR", units=5))).value
    driven = drive(page["Payments"](), records("payments", [(b"k", value)]))
    assert driven.error is None
    read = decoder(None, page["Payments"].value_deserializer)
    (message,) = driven.produced
    back = read(Record("refunds", 0, 0, 0, message.key, message.value)).value
    assert (back.currency_code, back.units) == ("EUR", -5)
    assert server.subjects == ["payments-value", "refunds-value"]


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({"value_serializer": "xml"}, "which cannot be called; give a function, or 'json'"),
        ({"key_deserializer": "xml"}, "which cannot be called; give a function, or 'json'"),
        ({"value_serializer": "json", "offsets": "kafka"}, "belongs to offsets='transaction'"),
    ],
)
def test_what_cannot_be_a_serialiser_is_refused(attributes, problem):
    more = {"topics": "t", "offsets": "transaction", "handle_record": lambda *_: None}
    kind = type("Sums", (KafkaLeaderCareer,), {**more, **attributes})
    with pytest.raises(ConfigurationError, match=problem):
        dressed(kind)._declared()
