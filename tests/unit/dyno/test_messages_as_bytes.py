"""Messages, their states, letters and names, as bytes; and the operations on them."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.dyno import layout, message, transitions
from leaderq.dyno.bodies import Bodies
from leaderq.dyno.index import Choice
from leaderq.dyno.layout import (
    NO_GROUP,
    escaped,
    group_of,
    kept_until_ms,
    name_prefix,
    parsed_name,
    unescaped,
)
from leaderq.dyno.message import MAX_ERROR, DeliveryState, DynoMessage, Frame, Unique, is_wanted
from leaderq.dyno.transitions import DeadMessage
from leaderq.errors import BadVersion, ConfigurationError, ConnectionLost, CorruptItem, NoNode
from leaderq.zookeeper import Check, Create, Delete, SetData

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(0, 10**13)
FRAMES = st.builds(
    Frame,
    payload=st.binary(max_size=50),
    id=TEXTS,
    enqueued_ms=NUMBERS,
    headers=st.dictionaries(TEXTS, TEXTS, max_size=3),
    **dict.fromkeys(("group", "body"), st.none() | TEXTS.filter(bool)),
    expires_ms=NUMBERS,
)


@given(FRAMES, st.just((Unique.STARTED, 0.0)) | st.tuples(st.just(Unique.DONE), st.floats(0, 1e6)))
def test_a_frame_comes_back_as_it_was(frame: Frame, how: tuple[Unique, float]) -> None:
    frame = frame._replace(unique=how[0], unique_s=how[1])
    assert Frame.read(frame.packed()) == frame == message.frame_of(frame.packed())


def framed(header: Any, payload: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return b"DQ1\n" + struct.pack(">I", len(raw)) + raw + payload


def test_the_bytes_of_a_message_are_as_documented() -> None:
    assert Frame(b"x").packed() == framed(b'{"at":0}', b"x")
    plain = Frame(b"", "i", 5, {"a": "b"}, "g", "ref", Unique.DONE, 1.5).packed()
    expected = '{"at":5,"id":"i","headers":{"a":"b"},"group":"g","body":"ref","unique_s":1.5}'
    assert plain == framed(expected.encode())
    assert Frame(b"", "\u00e4").packed() == framed('{"at":0,"id":"\u00e4"}'.encode())
    assert Frame(b"", unique=Unique.STARTED).packed() == framed(b'{"at":0,"unique":"started"}')


def test_what_a_header_leaves_out_has_its_default() -> None:
    for header in ({}, {"id": None, "group": "", "body": ""}):
        assert Frame.read(framed(header, b"p")) == Frame(b"p", headers={})


DEEP = b"[" * 100_000
NO_HEADERS: dict[str, list[Any]] = {
    "at": ["soon", None],
    **{name: [5] for name in ("id", "group", "body")},
    "headers": [{"a": 5}, ["a"], None],
    "unique": ["never", []],
    "unique_s": [-1, "x"],
}


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"DQ1\n", b"DQ1\n\0\0", b"DQ2\n" + framed({})[4:]),
        *map(framed, (b"{", b"\xff", [], DEEP, b'{"at":1e999}')),
        *(framed({name: wrong}) for name in NO_HEADERS for wrong in NO_HEADERS[name]),
    ],
)
def test_bytes_that_are_not_a_message_are_corrupt_and_an_empty_frame(data: bytes) -> None:
    with pytest.raises(CorruptItem):
        Frame.read(data)
    assert message.frame_of(data) == Frame(b"")


@given(
    st.builds(
        *(DeliveryState, NUMBERS, NUMBERS, TEXTS, NUMBERS),
        *(st.text(max_size=MAX_ERROR), NUMBERS, NUMBERS),
    )
)
def test_the_state_of_deliveries_comes_back_and_of_an_error_what_can_be_encoded(state):
    error = state.error.encode(errors="replace").decode()
    lease_ms = state.lease_ms if state.member else 0
    assert DeliveryState.read(state.packed()) == state._replace(error=error, lease_ms=lease_ms)


def test_the_bytes_of_a_state_are_as_documented() -> None:
    state = DeliveryState(1, 2, "m", 3, "", 4, 5)
    assert state.packed() == b'{"n":1,"f":2,"u":3,"t":4,"m":"m","l":5}'
    resting = state._replace(member="").packed()
    assert resting == b'{"n":1,"f":2,"u":3,"t":4,"m":""}'
    long = state._replace(error="x" * 2000)
    assert DeliveryState.read(long.packed()).error == "x" * 1000
    assert DeliveryState.read(b'{"n":7}') == DeliveryState(7, 0, "", 0, "", 0)
    assert DeliveryState() == (0, 0, "", 0, "", 0, 0)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"5", b"[]", b'{"n":"x"}', b'{"n":null}', b'{"u":1e999}', DEEP]
)
def test_an_unreadable_state_counts_as_a_lease_that_is_over(data: bytes) -> None:
    assert DeliveryState.read(data) == DeliveryState()


def test_a_state_tells_whether_a_consumer_has_had_the_message_and_for_how_long_one_has_it() -> None:
    states = DeliveryState(), DeliveryState(deliveries=1), DeliveryState(first_ms=1)
    assert [one.has_started for one in states] == [False, True, True]
    former = DeliveryState(2, 1, "a", 5, "e", 4, 7)
    assert former.leased("m", 1000, 2.0005) == (2, 1, "m", 3000, "e", 4, 2000)
    assert states[0].leased("m", 1000, 0.0005) == (0, 0, "m", 1000, "", 0, 1)


def test_what_is_wanted_is_what_a_plain_function_says() -> None:
    def unfinished(_: object) -> object:
        yield

    assert [is_wanted(5, how) for how in (None, bool, lambda _: 0)] == [True, True, False]
    with pytest.raises(ConfigurationError, match="says what is wanted returned"):
        is_wanted(5, unfinished)


def test_a_message_has_defaults_and_its_payload_as_text_and_json() -> None:
    plain = DynoMessage(payload=b'{"a": "\xc3\xa4"}')
    assert (plain.id, plain.timeout_s, plain.priority, plain.shard) == ("", 0.0, 0, None)
    assert (plain.headers, plain.group) == ({}, None)
    assert (plain.unique, plain.unique_s) == (Unique.DONE, 0.0)
    assert plain.text == '{"a": "\u00e4"}'
    assert plain.json() == {"a": "\u00e4"}


@pytest.mark.parametrize(
    "given",
    [
        {"priority": 0, "timeout_s": 0.5, "unique": Unique.STARTED},
        {"priority": 99, "shard": "a", "group": "b", "headers": {"a": "b", "c": "d"}},
        {"id": "x" * 200, "unique_s": 1.0},
        {"id": "\u5b57" * 22},
        {"id": "a", "unique": Unique.STARTED},
        {"id": "x" * 201, "place": "x" * 201},  # as it was read
    ],
)
def test_what_can_be_pushed_is_taken(given: dict[str, Any]) -> None:
    assert DynoMessage(**given) == DynoMessage(**{"place": "x" * 201, **given})


REFUSED: dict[str, list[Any]] = {
    "id": [5],
    "payload": ["text"],
    "priority": [-1, 100, 1.0, True],
    "headers": [[], {"a": 5}, {5: "a"}, {"a": "b", "c": 5}],
    **{name: ["", 5] for name in ("shard", "group")},
    "timeout_s": [-1, float("nan"), float("inf"), True, "1"],
    "expires_s": [-1],
    "unique": ["done"],
}


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        *(({name: one}, [f"{name}={one!r}: "]) for name in REFUSED for one in REFUSED[name]),
        ({"id": "\ud800"}, ["id="]),
        ({"id": "x" * 201, "payload": 5}, ["1 to 200 bytes", "payload=5: "]),
        ({"id": "\u5b57" * 23}, ["200 bytes, where a letter outside ASCII"]),
        ({"headers": {"a": "\ud800"}, "group": "\ud800"}, ["headers=", "group="]),
        ({"id": "a", "unique_s": -1}, ["unique_s=-1: "]),
        ({"unique_s": 1.0}, ["unique_s=1.0: give it with an id"]),
        ({"id": "a", "unique": Unique.STARTED, "unique_s": 1}, ["unique_s=1: give it with an id"]),
    ],
)
def test_what_cannot_be_pushed_is_refused_with_all_its_problems(given, problems):
    with pytest.raises(ConfigurationError) as refused:
        DynoMessage(**given)
    said = str(refused.value)
    assert [each for each in problems if each not in said] == []
    assert said.count(" give ") == len(problems)


class Store:
    def __init__(self, reference: Any) -> None:
        self.put = lambda _: reference
        self.get = self.delete = self.ages = lambda *_: ()


def test_a_store_that_returns_no_reference_loses_no_payload() -> None:
    assert Bodies(Store("r" * 200), 3).put(b"1234") == (b"", "r" * 200)
    assert Bodies(Store(None), 4).put(b"1234") == Bodies(None, 0).put(b"1234") == (b"1234", None)
    for wrong in (None, "", 5, b"r", "\ud800", "r" * 201):
        with pytest.raises(ConfigurationError, match="1 to 200"):
            Bodies(Store(wrong), 3).put(b"1234")


@given(st.binary(max_size=40), NUMBERS, NUMBERS, NUMBERS, NUMBERS, TEXTS, TEXTS)
def test_a_letter_comes_back_as_it_was_at_the_place_where_it_lies(
    data: bytes, deliveries: int, failures: int, first: int, died: int, reason: str, error: str
) -> None:
    letter = DeadMessage("n", "s", reason, error, deliveries, failures, first, died, data)
    assert DeadMessage.read(letter.packed(), "s", "n") == letter
    moved = DeadMessage.read(letter.packed(), "t", "o")
    assert (moved.shard, moved.name, moved.data) == ("t", "o", data)


def test_a_letter_tells_of_the_deliveries_of_its_message() -> None:
    letter = DeadMessage.of("s", "n", b"d", DeliveryState(1, 2, "m", 3, "e", 4), "r", 9)
    assert letter == DeadMessage("n", "s", "r", "e", 1, 2, 4, 9, b"d")


def test_of_a_long_reason_or_error_a_letter_keeps_the_beginning() -> None:
    letter = DeadMessage("n", "s", "r" * 2000, "e\ud800" * 2000, 1, 1, 1, 1, b"")
    read = DeadMessage.read(letter.packed(), "s", "n")
    assert (read.reason, read.error) == ("r" * MAX_ERROR, "e?" * (MAX_ERROR // 2))


def test_the_message_in_a_letter_is_read_or_said_to_be_corrupt() -> None:
    frame = Frame(b"x", "i", headers={})
    letter = DeadMessage("n", "s", "killed", "", 1, 1, 1, 1, frame.packed())
    assert letter.frame == frame
    with pytest.raises(CorruptItem):
        _ = DeadMessage("n", "s", "killed", "", 1, 1, 1, 1, b"DQ1\n").frame


NUMBERED = ("deliveries", "failures", "first_ms", "died_ms")
SAID = {"reason": "r", "error": "e", **dict.fromkeys(NUMBERED, 1)}


def lettered(**changed: Any) -> bytes:
    kept = {key: value for key, value in (SAID | changed).items() if value is not ...}
    return b"DQD1\n" + json.dumps(kept).encode() + b"\n"


def test_numbers_and_texts_of_a_letter_are_so_however_they_were_written() -> None:
    odd = lettered(deliveries="1", failures="2", first_ms="3", died_ms="4", reason=5, error=6)
    assert DeadMessage.read(odd, "s", "n") == DeadMessage("n", "s", "5", "6", 1, 2, 3, 4, b"")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"DQD1\n{}", lettered()[1:], lettered()[5:], lettered()[:-1]),
        *(b"DQD1\n" + said + b"\n" for said in (b"{", b"5", DEEP)),
        *(lettered(**{name: ...}) for name in SAID),
        *(lettered(deliveries=wrong) for wrong in ("many", float("inf"), None)),
        lettered(more=1),
    ],
)
def test_bytes_that_are_not_a_letter_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptItem):
        DeadMessage.read(data, "s", "n")


NAME = "07-0000000000012-00000000-0000000003"
TIMES = st.integers(0, 10**15)


@given(st.integers(0, 99), TIMES, st.none() | st.text(max_size=5), st.integers(0, 10**10 - 1))
def test_a_name_says_what_it_was_made_of(priority, due_ms, group, sequence):
    name = f"{name_prefix(priority, due_ms, group_of(group))}{sequence:010}"
    due_ms = min(due_ms, layout.MAX_DUE_MS)
    assert parsed_name(name) == layout.MessageName(priority, due_ms, group_of(group), sequence)


@given(st.integers(-5, 10**15), st.integers(0, 10**10 - 1))
def test_a_marker_says_until_when_which_message_rests(until_ms: int, version: int) -> None:
    marker = layout.rest_name(until_ms, version, NAME)
    until = min(max(until_ms, 0), layout.MAX_DUE_MS)
    assert layout.parsed_rest(marker) == layout.RestName(until, version, NAME)


def test_names_are_as_documented() -> None:
    assert layout.MAX_PRIORITY == 99
    assert name_prefix(7, 12) == "07-0000000000012-00000000-"
    assert name_prefix(7, 10**13) == "07-9999999999999-00000000-"
    assert layout.rest_name(-1, 2, NAME) == f"0000000000000-2-{NAME}"
    assert parsed_name(NAME) == (7, 12, "00000000", 3)
    for strange in ("", "x", NAME[1:], f"{NAME}0", NAME.replace("0", "\u0660"), NAME.upper() + "g"):
        assert parsed_name(strange) is None
    for strange in ("", NAME, f"0000000000000-{NAME}", f"0000000000000-12345678901-{NAME}"):
        assert layout.parsed_rest(strange) is None


def test_until_when_the_id_of_a_done_message_is_kept() -> None:
    assert (kept_until_ms(b"=5"), kept_until_ms(b"=" + b"9" * 18)) == (5, 10**18 - 1)
    for other in (b"=" + b"9" * 19, b"=", b"=x", b"a/5", b"15", b""):
        assert kept_until_ms(other) is None


def test_groups_are_told_apart_by_a_hash_that_is_never_that_of_none(monkeypatch):
    assert group_of(None) == NO_GROUP == "00000000"
    assert len({group_of("a"), group_of("b"), NO_GROUP}) == 3
    assert len(group_of("a")) == 8

    class Unlucky:
        def hexdigest(self) -> str:
            return NO_GROUP

    monkeypatch.setattr("hashlib.blake2s", lambda *_, **__: Unlucky())
    assert group_of("a") == "00000001"


def test_ids_become_one_part_of_a_path() -> None:
    assert escaped("a b,;:=@+!$&'()*") == "a b,;:=@+!$&'()*"
    assert escaped("a/b\ud800") == "a%2Fb%ED%A0%80"
    assert [escaped(text) for text in (".", "..", "a.b")] == ["%2E", "%2E%2E", "a.b"]
    assert escaped("x" * 200) == "x" * 200
    assert [unescaped(escaped(text)) for text in ("a/b\ud800", "..")] == ["a/b\ud800", ".."]
    assert [unescaped(part) for part in ("%41", "a%ff", "x" * 201, "")] == [None] * 4
    for wrong in ("", "x" * 201, "/" * 67):
        with pytest.raises(ConfigurationError, match="1 to 200 bytes"):
            escaped(wrong)


SHARD = layout.ShardPaths("/q", "a/b")
BASE = "/q/shards/a%2Fb"
MESSAGE, CLAIM = f"{BASE}/messages/{NAME}", f"{BASE}/claims/{NAME}"
QUEUE = layout.DynoPaths("/q")
STATE = DeliveryState(1, 0, "m", 50, "", 5)
LETTER = DeadMessage.of("a/b", NAME, b"d", STATE, "r", 9)
PLAIN, LASTING = Frame(b"", "i"), Frame(b"", "i", unique_s=2.5)
UNTIL_STARTED = Frame(b"", "i", unique=Unique.STARTED)
FREE = (Delete("/q/ids/i"),)
KEPT = SetData("/q/ids/i", b"=2507"), Create("/q/windows/0000000002507-i")


def test_where_the_parts_of_a_queue_lie() -> None:
    parts = {"shards", "ids", "windows", "members", "pushes"}
    assert parts == layout.PARTS
    assert {part: getattr(QUEUE, part) for part in parts} == {part: f"/q/{part}" for part in parts}
    one = QUEUE.shard("a/b")
    assert one is QUEUE.shard("a/b")
    assert (QUEUE.root, one.shard, one.base) == ("/q", "a/b", BASE)
    held = ("messages", "claims", "rests", "dead")
    assert one.parents == tuple(f"{BASE}/{part}" for part in held)


def test_a_delivery_changes_the_claim_that_was_seen() -> None:
    claim = SetData(CLAIM, STATE.packed(), 4)
    for choice, expected in (
        (Choice(NAME), (Check(MESSAGE), Create(CLAIM, STATE.packed()))),
        (Choice(NAME, 4), (claim,)),
        (Choice(NAME, 4, "r"), (claim, Delete(f"{BASE}/rests/r"))),
    ):
        assert transitions.delivery(SHARD, choice, STATE) == expected


def test_a_rest_is_marked_with_the_version_that_the_claim_has_then() -> None:
    marker = f"{BASE}/rests/0000000000050-5-{NAME}"
    expected = (SetData(CLAIM, STATE.packed(), 4), Create(marker))
    assert transitions.rest(SHARD, NAME, 4, STATE) == expected
    first = f"{BASE}/rests/0000000000050-0-{NAME}"
    expected_first = (Check(MESSAGE), Create(CLAIM, STATE.packed()), Create(first))
    assert transitions.first_rest(SHARD, NAME, STATE) == expected_first


@pytest.mark.parametrize("version", [None, 4])
@pytest.mark.parametrize("marker", [None, "r"])
def test_a_removal_takes_all_of_a_message(version: int | None, marker: str | None) -> None:
    claimed = (Create(CLAIM), Delete(CLAIM)) if version is None else (Delete(CLAIM, version),)
    rested = () if marker is None else (Delete(f"{BASE}/rests/{marker}"),)
    expected = (*claimed, Delete(MESSAGE), *rested)
    assert transitions.removal(SHARD, NAME, version, marker) == expected
    choice, kept = Choice(NAME, version, marker), Create(f"{BASE}/dead/{NAME}", LETTER.packed())
    for how, more in (({}, ()), ({"letter": LETTER}, (kept,))):
        ended = transitions.end(QUEUE, "a/b", choice, PLAIN, STATE, **how)
        assert ended == (*expected, *more, *FREE)


def test_at_the_end_of_a_message_its_id_goes_unless_it_went_when_it_started() -> None:
    gone, fresh = (Delete(CLAIM, 4), Delete(MESSAGE)), DeliveryState()
    cases = (UNTIL_STARTED, STATE, ()), (UNTIL_STARTED, fresh, FREE), (LASTING, STATE, KEPT)
    for frame, state, more in cases:
        ended = transitions.end(QUEUE, "a/b", Choice(NAME, 4), frame, state, done_ms=7)
        assert ended == (*gone, *more)


def test_the_id_of_a_message_that_is_over_is_free_or_kept_for_a_while() -> None:
    def over(frame: Frame, has_started: bool, done_ms: int | None = None) -> object:
        return transitions.id_over(QUEUE, frame, has_started=has_started, done_ms=done_ms)

    assert over(Frame(b""), True, 7) == ()
    assert (over(PLAIN, True), over(PLAIN, True, 7), over(PLAIN, False)) == (FREE, FREE, FREE)
    assert (over(UNTIL_STARTED, True), over(UNTIL_STARTED, False)) == ((), FREE)
    assert (over(LASTING, True), over(LASTING, True, 7)) == (FREE, KEPT)


@pytest.mark.parametrize("path", ["/q/ids/i", f"{BASE}/rests/r"])
def test_a_message_can_do_without_its_id_and_its_marker_and_nothing_else(path: str) -> None:
    operations = (Delete(path), Delete(MESSAGE), Create(path))
    rest = (Delete(MESSAGE), Create(path))
    assert transitions.without_missing(operations, NoNode("gone", path=path)) == rest
    assert transitions.without_missing(rest, NoNode("gone", path=path)) is None
    others = [BadVersion("else", path=path), NoNode("gone", path=MESSAGE), NoNode("gone")]
    for other in (*others, ConnectionLost("away")):
        assert transitions.without_missing(operations, other) is None
