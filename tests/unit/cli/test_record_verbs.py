"""``leaderq dead`` and ``leaderq topics`` over a Kafka that is not there."""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from leaderq.base.exits import ExitCode
from leaderq.cli import dead, main
from leaderq.kafka import topics
from leaderq.kafka.dead_letters.format import PREFIX, new_dead_letter
from leaderq.kafka.handling import burials
from leaderq.kafka.record import Record


def test_a_letter_cannot_command_the_terminal_that_shows_it(monkeypatch, capsys):
    record = Record("clicks", 0, 7, 1, b"k", b"v", [("name\x1b[2J", b"text")])
    told = {"attempts": 1, "term": 1, "career": "c", "at_ms": 1}
    letter = new_dead_letter(record, ValueError("bad\x1b[2J\nsecond line"), **told)
    found = Record("c-dead", 0, 41, letter.timestamp_ms, letter.key, letter.value, letter.headers)
    reader = SimpleNamespace(one=lambda *_place: found)
    monkeypatch.setattr(dead, "_reader", lambda _given: nullcontext(reader))
    assert main(["dead", "show", "--career", "c", "0:41"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "bad\\x1b[2J\nsecond line\n" in out
    assert "  name\\x1b[2J: text\n" in out


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59+00:00", "1970-01-01T00:00:00+00:00"])
def test_a_letter_of_any_time_is_listed(monkeypatch, capsys, at):
    monkeypatch.setenv("TZ", "XXX-14")
    time.tzset()
    headers = [("topic", b"a"), ("partition", b"0"), ("offset", b"7"), ("at", at.encode())]
    pairs = [(PREFIX + name, value) for name, value in headers]
    found = Record("c-dead", 0, 41, 1, b"k", b"v", pairs)
    reader = SimpleNamespace(
        topic="c-dead", starts={0: 0}, ends={0: 42}, noted=dict, read=lambda: [found]
    )
    monkeypatch.setattr(dead, "_reader", lambda _given: nullcontext(reader))
    try:
        assert main(["dead", "ls", "--career", "c"]) == ExitCode.OK
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    assert "a-0@7" in capsys.readouterr().out


def test_records_are_not_sent_back_to_the_topic_of_the_letters(monkeypatch, capsys):
    monkeypatch.setattr(dead, "_letters_topic", lambda _given: "c-dead")
    monkeypatch.setattr(dead.signal, "signal", lambda *_: None)
    words = ["dead", "replay", "--career", "c", "--to", "c-dead", "--yes"]
    assert main(words) == ExitCode.USAGE
    assert "--to 'c-dead' is the topic of the letters" in capsys.readouterr().err


@pytest.mark.parametrize("interrupted", [True, False])
def test_no_request_to_bury_a_record_is_left_standing(monkeypatch, capsys, interrupted):
    asked: list[str] = []
    waits_s: list[float] = []

    def wait(_session, _path, place, wait_s):
        waits_s.append(wait_s)
        if interrupted and place == "a-0@2":
            raise KeyboardInterrupt
        if place == "a-0@1":
            asked.remove(place)
        return place == "a-0@1"

    monkeypatch.setattr(dead, "connected", lambda _given: nullcontext(None))
    monkeypatch.setattr(dead, "known_career", lambda *_: "c")
    monkeypatch.setattr(dead.signal, "signal", lambda *_: None)
    monkeypatch.setattr(burials, "ask", lambda _session, _path, place, _who: asked.append(place))
    monkeypatch.setattr(burials, "wait_until_done", wait)
    monkeypatch.setattr(burials, "take_back", lambda *given: asked.remove(given[2]))
    places = [word for number in (1, 2, 3) for word in ("--at", f"a-0@{number}")]
    code = main(["dead", "bury", "--career", "c", *places, "--yes"])
    assert code == (ExitCode.FORCED if interrupted else ExitCode.FAILED)
    assert asked == []
    assert waits_s == sorted(set(waits_s), reverse=True)  # the time-out is that of all together


def test_nothing_is_sent_if_a_record_is_too_large(monkeypatch, capsys):
    sent: list[object] = []
    monkeypatch.setattr(topics, "end_offsets", lambda *_, **__: {})
    monkeypatch.setattr(topics, "produce", lambda *given, **_: sent.append(given))
    assert main(["topics", "put", "clicks", "small", "x" * (2**20 + 1)]) == ExitCode.USAGE
    assert "record 2 has 1048577 bytes" in capsys.readouterr().err
    assert not sent
