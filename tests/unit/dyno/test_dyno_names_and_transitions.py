"""Where the parts of a Dyno queue lie, how they are named, and the operations of each transition."""  # noqa: E501

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.dyno import transitions
from leaderq.dyno.index import Choice
from leaderq.dyno.layout import (
    MAX_DUE_MS,
    MAX_PRIORITY,
    NO_GROUP,
    DynoPaths,
    MessageName,
    RestName,
    ShardPaths,
    escaped,
    group_of,
    kept_until_ms,
    name_prefix,
    parsed_name,
    parsed_rest,
    rest_name,
)
from leaderq.dyno.message import DeliveryState, Frame, Unique
from leaderq.errors import BadVersion, ConfigurationError, ConnectionLost, NoNode
from leaderq.zookeeper import Check, Create, Delete, SetData

NAME = "07-0000000000012-00000000-0000000003"
TIMES = st.integers(0, 10**15)


@given(st.integers(0, 99), TIMES, st.none() | st.text(max_size=5), st.integers(0, 10**10 - 1))
def test_a_name_says_what_it_was_made_of(
    priority: int, due_ms: int, group: str | None, sequence: int
) -> None:
    name = f"{name_prefix(priority, due_ms, group_of(group))}{sequence:010}"
    expected = MessageName(priority, min(due_ms, MAX_DUE_MS), group_of(group), sequence)
    assert parsed_name(name) == expected


@given(st.integers(-5, 10**15), st.integers(0, 10**10 - 1))
def test_a_marker_says_until_when_which_message_rests(until_ms: int, version: int) -> None:
    until = min(max(until_ms, 0), MAX_DUE_MS)
    assert parsed_rest(rest_name(until_ms, version, NAME)) == RestName(until, version, NAME)


def test_names_are_as_documented() -> None:
    assert MAX_PRIORITY == 99
    assert name_prefix(7, 12) == "07-0000000000012-00000000-"
    assert name_prefix(7, 10**13) == "07-9999999999999-00000000-"
    assert rest_name(-1, 2, NAME) == f"0000000000000-2-{NAME}"
    assert parsed_name(NAME) == (7, 12, "00000000", 3)
    for strange in ("", "x", NAME[1:], f"{NAME}0", NAME.replace("0", "\u0660"), NAME.upper() + "g"):
        assert parsed_name(strange) is None
    for strange in ("", NAME, f"0000000000000-{NAME}", f"0000000000000-12345678901-{NAME}"):
        assert parsed_rest(strange) is None


@pytest.mark.parametrize(
    ("data", "until_ms"),
    [
        (b"=5", 5),
        (b"=" + b"9" * 18, 10**18 - 1),
        (b"=" + b"9" * 19, None),
        (b"=", None),
        (b"=x", None),
        (b"5", None),
        (b"a/5", None),
        (b"15", None),
        (b"", None),
    ],
)
def test_until_when_the_id_of_a_done_message_is_kept(data: bytes, until_ms: int | None) -> None:
    assert kept_until_ms(data) == until_ms


def test_groups_are_told_apart_by_a_hash_that_is_never_that_of_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    for wrong in ("", "x" * 201, "/" * 67):
        with pytest.raises(ConfigurationError, match="1 to 200 bytes"):
            escaped(wrong)


SHARD = ShardPaths("/q", "a/b")
BASE = "/q/shards/a%2Fb"
MESSAGE, CLAIM = f"{BASE}/messages/{NAME}", f"{BASE}/claims/{NAME}"
QUEUE = DynoPaths("/q")
STATE = DeliveryState(1, 0, "m", 50, "", 5)


def test_everything_lies_where_it_is_documented_to_lie() -> None:
    SHARD, QUEUE = ShardPaths("/q", "a/b"), DynoPaths("/q")  # noqa: N806 - made anew here
    folders = [f"{BASE}/{each}" for each in ("messages", "claims", "rests", "dead")]
    assert (SHARD.shard, SHARD.base, list(SHARD.parents)) == ("a/b", BASE, folders)
    assert [SHARD.message("n"), SHARD.claim("n"), SHARD.rest("n"), SHARD.dead_letter("n")] == [
        f"{folder}/n" for folder in folders
    ]
    assert (QUEUE.root, QUEUE.shards, QUEUE.ids) == ("/q", "/q/shards", "/q/ids")
    places = (QUEUE.windows, QUEUE.members, QUEUE.pushes)
    assert places == ("/q/windows", "/q/members", "/q/pushes")
    assert QUEUE.window(5, "a/b") == "/q/windows/0000000000005-a%2Fb"
    assert QUEUE.id("a/b") == "/q/ids/a%2Fb"
    assert QUEUE.shard("a/b").base == BASE
    assert QUEUE.shard("a/b") is QUEUE.shard("a/b")
    assert QUEUE.shard("c") is not QUEUE.shard("a/b")


def test_a_first_delivery_expects_the_message_and_no_claim() -> None:
    found = transitions.delivery(SHARD, Choice(NAME), STATE)
    assert found == (Check(MESSAGE), Create(CLAIM, STATE.packed()))


def test_a_later_delivery_expects_the_version_that_was_looked_at() -> None:
    update = SetData(CLAIM, STATE.packed(), 4)
    assert transitions.delivery(SHARD, Choice(NAME, 4), STATE) == (update,)
    woken = transitions.delivery(SHARD, Choice(NAME, 4, "r"), STATE)
    assert woken == (update, Delete(f"{BASE}/rests/r"))


def test_a_completion_takes_the_claim_at_its_version_and_the_message() -> None:
    assert transitions.completion(SHARD, NAME, 4) == (Delete(CLAIM, 4), Delete(MESSAGE))


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
    letter = Create(f"{BASE}/dead/{NAME}", b"l")
    assert transitions.burial(SHARD, Choice(NAME, version, marker), b"l") == (*expected, letter)


def test_the_id_of_a_message_that_is_over_is_free_or_kept_for_a_while() -> None:
    def over(frame: Frame, has_started: bool, done_ms: int | None = None) -> object:
        return transitions.id_over(QUEUE, frame, has_started=has_started, done_ms=done_ms)

    free = (Delete("/q/ids/i"),)
    kept = SetData("/q/ids/i", b"=2507"), Create("/q/windows/0000000002507-i")
    plain, lasting = Frame(b"", "i"), Frame(b"", "i", unique_s=2.5)
    until_started = Frame(b"", "i", unique=Unique.STARTED)
    assert over(Frame(b""), True, 7) == ()
    assert (over(plain, True), over(plain, True, 7), over(plain, False)) == (free, free, free)
    assert (over(until_started, True), over(until_started, False)) == ((), free)
    assert (over(lasting, True), over(lasting, True, 7)) == (free, kept)


@pytest.mark.parametrize("path", ["/q/ids/i", f"{BASE}/rests/r"])
def test_a_message_can_do_without_its_id_and_without_its_marker(path: str) -> None:
    operations = (Delete(path), Delete(MESSAGE), Create(path))
    rest = (Delete(MESSAGE), Create(path))
    assert transitions.without_missing(operations, NoNode("gone", path=path)) == rest
    assert transitions.without_missing(rest, NoNode("gone", path=path)) is None
    assert transitions.without_missing(operations, BadVersion("else", path=path)) is None


def test_a_message_cannot_do_without_anything_else() -> None:
    operations = (Delete(MESSAGE), Delete(CLAIM))
    assert transitions.without_missing(operations, NoNode("gone", path=MESSAGE)) is None
    assert transitions.without_missing(operations, NoNode("gone")) is None
    assert transitions.without_missing(operations, ConnectionLost("away")) is None
