"""Lines as requests: a key and perhaps a time, the access log, and lines that may hold anything."""

from __future__ import annotations

import pytest

from leaderq.coalescing.analysing import (
    access_log,
    key_and_time,
)

LINE = (
    '203.0.113.9 - alice [17/May/2015:10:05:03 +0000] "GET /a?b=1 HTTP/1.1" 200 512 "http://x/"'
    ' "Mozilla \\"5\\" (X)"'
)
AT_S = 1431857103.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("client", "203.0.113.9"),
        ("ident", "-"),
        ("user", "alice"),
        ("time", "17/May/2015:10:05:03 +0000"),
        ("request", "GET /a?b=1 HTTP/1.1"),
        ("method", "GET"),
        ("path", "/a?b=1"),
        ("protocol", "HTTP/1.1"),
        ("status", "200"),
        ("bytes", "512"),
        ("referer", "http://x/"),
        ("agent", 'Mozilla \\"5\\" (X)'),
    ],
)
def test_the_fields_of_an_access_log(key, value):
    assert access_log(key)(LINE) == (value, AT_S)


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("/a b", ("/a b", None)),
        ("/a b\t5", ("/a b", 5.0)),
        ("a\tb\t5.5", ("a\tb", 5.5)),
        ("k\t2015-05-17 10:05:03", ("k", AT_S)),
        ("k\t2015-05-17T10:05:03Z", ("k", AT_S)),
        ("k\t2015-05-17T12:05:03+02:00", ("k", AT_S)),
        ("\t1", ("", 1.0)),
    ],
)
def test_a_key_and_behind_a_tab_a_time(line, request_):
    assert key_and_time(line) == request_
