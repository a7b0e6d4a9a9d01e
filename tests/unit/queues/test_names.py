"""Names of items: what Curator 5.9.0 was seen to write, and that all of them are read again, and go
in Curator's order.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leaderq.errors import ConfigurationError
from leaderq.queues.wire import names
from leaderq.queues.wire.names import QueueKind

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
sequences = st.integers(0, INT_MAX)
ran_over = st.integers(INT_MIN, -1)
priorities = st.integers(INT_MIN, INT_MAX)
dues = st.integers(1, 2**63 - 1)
refused = {*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xF900), *range(0xFFF0, 0x10000)}
letters = st.characters(max_codepoint=0xFFFF, exclude_characters=[*map(chr, refused)])
ids = st.text(letters, min_size=1)
spoilt = st.text(st.sampled_from("0189AFaf|-xqueu_"), max_size=30).map("queue-".__add__)


def put(kind: QueueKind, sequence: int, **what: object) -> str:
    """A name as the server makes it."""
    return names.prefix_for(kind, **what) + f"{sequence:010d}"  # type: ignore[arg-type]


def ordered(kind: QueueKind, given_names: list[str]) -> list[str]:
    return sorted(given_names, key=names.sort_key(kind))


@pytest.mark.parametrize(
    ("kind", "what", "sequence", "name"),
    [
        (QueueKind.PRIORITY, {"priority": 0}, 0, "queue-1000000000000000000"),
        (QueueKind.PRIORITY, {"priority": 5}, 1, "queue-1000000050000000001"),
        (QueueKind.PRIORITY, {"priority": -5}, 3, "queue-0FFFFFFFB0000000003"),
        (QueueKind.PRIORITY, {"priority": INT_MIN}, 4, "queue-0800000000000000004"),
        (QueueKind.PRIORITY, {"priority": INT_MAX}, 5, "queue-17FFFFFFF0000000005"),
        (QueueKind.DELAY, {"due_ms": 1}, 0, "queue-|00000001|0000000000"),
        (QueueKind.DELAY, {"due_ms": 1700000000000}, 1, "queue-|18BCFE56800|0000000001"),
        (QueueKind.ID, {"id": "a/b|c"}, 0, "queue-|a_b_c|0000000000"),
        (QueueKind.ID, {"id": "id"}, 1, "queue-|id|0000000001"),
    ],
)
def test_items_are_named_as_curator_names_them(kind, what, sequence, name):
    assert put(kind, sequence, **what) == name
    assert names.sequence_of(name) == sequence
    readers = {"priority": names.priority_of, "due_ms": names.due_ms_of, "id": names.id_of}
    for field, value in what.items():
        assert readers[field](name) == (names.fixed_id(value) if field == "id" else value)


def test_an_id_is_what_stands_between_the_first_separator_and_the_next() -> None:
    assert names.id_of("queue-|id|1F|0000000003") == "id"
    assert names.id_of("queue-|half") == "queue-|half"
    assert names.sort_key(QueueKind.ID)("queue-|a|b|0000000001") == "queue-b|0000000001"


@pytest.mark.parametrize(
    ("name", "sequence", "prefix"),
    [
        ("queue-0000000005", 5, "queue-"),
        ("queue--2147483648", INT_MIN, "queue-"),
        ("queue--000000005", -5, "queue-"),
        ("queue-100000005-999999999", -999999999, "queue-100000005"),
        ("queue-100000005-2147483648", INT_MIN, "queue-100000005"),
        ("queue-|id|-000000001", -1, "queue-|id|"),
        ("queue-", 0, "queue-"),
        ("", 0, ""),
        ("x-2147483648", INT_MIN, "x"),
        ("-000000001", -1, ""),
        ("99999999990", 9999999990, "9"),
    ],
)
def test_the_number_ends_a_name_and_the_dash_of_the_prefix_is_no_minus_sign(name, sequence, prefix):
    assert names.sequence_of(name) == sequence
    assert names.prefix_of(name) == prefix


@given(st.sampled_from(QueueKind), sequences | ran_over, ids, priorities, dues)
def test_every_name_is_read_again(kind, sequence, id, priority, due_ms):
    prefix = names.prefix_for(kind, id=id, priority=priority, due_ms=due_ms)
    name = f"{prefix}{sequence:010d}"
    assert names.is_item(kind, name)
    assert names.sequence_of(name) == sequence
    assert names.prefix_of(name) == prefix
    if kind is QueueKind.ID:
        assert names.id_of(name) == names.fixed_id(id)
    elif kind is QueueKind.PRIORITY:
        assert names.priority_of(name) == priority
    elif kind is QueueKind.DELAY:
        assert names.due_ms_of(name) == due_ms


@given(st.text())
def test_no_name_is_too_odd_to_be_looked_at(name: str) -> None:
    for kind in QueueKind:
        names.is_item(kind, name)
        assert names.sort_key(kind)(name) is not None
    assert names.prefix_of(name) == name or name.startswith(names.prefix_of(name))
    names.sequence_of(name), names.id_of(name), names.priority_of(name), names.due_ms_of(name)


@given(st.lists(spoilt))
@example(["queue-|1|", "queue-8000000000"])
def test_malformed_items_go_in_curators_order_too(items: list[str]) -> None:
    """The text of each name, but for delays (numeric), however a name is spoilt."""
    assert ordered(QueueKind.PLAIN, items) == sorted(items)
    assert ordered(QueueKind.PRIORITY, items) == sorted(items)
    dues_in_order = [names.due_ms_of(name) for name in ordered(QueueKind.DELAY, items)]
    assert dues_in_order == sorted(dues_in_order)


UNREADABLE = ["0x10", "1_0", " 1", "", "G", "1" * 17, "8000000000000000", "\u0661"]
DUE = [("+1", 1), ("id|1f", 0x1F), ("-8000000000000000", -(2**63)), ("7FFFFFFFFFFFFFFF", 2**63 - 1)]


@pytest.mark.parametrize(
    ("due", "due_ms"), [*((one, 0) for one in [*UNREADABLE, "-8000000000000001"]), *DUE]
)
def test_a_due_time_is_what_java_reads_and_else_now(due, due_ms):
    name = f"queue-|{due}|0000000001"
    assert names.due_ms_of(name) == due_ms
    assert due_ms or names.due_ms_of(f"{due}|0000000001") == 0  # one bar is none
    later = put(QueueKind.DELAY, 2, due_ms=2**63 - 1)
    assert ordered(QueueKind.DELAY, [later, name]) == [name, later]


NO_IDS = ["", None, "a\x00", "a\x1f", "\x7f", "\ud800", "\ue000", "\uf8ff", "\ufff0", "\uffff"]
REFUSED = {
    "id": [*NO_IDS, "\U0001f600"],
    "priority": [None, INT_MIN - 1, INT_MAX + 1, 1.0, True, "1"],
    "due_ms": [None, 0, -1, 2**63, 1.5, True],
}
"""What ZooKeeper refuses as part of a name, what is no Java int, and no positive Java long."""


@pytest.mark.parametrize(("what", "wrong"), [(w, each) for w in REFUSED for each in REFUSED[w]])
def test_what_cannot_stand_in_a_name_is_refused_at_once(what: str, wrong: object) -> None:
    kinds = {"id": QueueKind.ID, "priority": QueueKind.PRIORITY, "due_ms": QueueKind.DELAY}
    with pytest.raises(ConfigurationError, match=what.replace("_ms", " time")):
        names.prefix_for(kinds[what], **{what: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("there", "kind"),
    [
        ([], None),
        (["queue-0000000001"], QueueKind.PLAIN),
        (["foreign", "queue-0000000001", "queue-1000000050000000001"], QueueKind.PRIORITY),
        (["queue-0000000001", "queue-0FFFFFFFB-2147483648"], QueueKind.PRIORITY),
        (["queue-0000000001", "queue-|18BCFE56800|0000000001"], QueueKind.DELAY),
        (["queue-|18BCFE56800|0000000001", "queue-|order 7|0000000002"], QueueKind.ID),
        (["queue-|id|0000000002", "queue-0000000001"], QueueKind.ID),
        (["qn-0000000001", "other"], QueueKind.SIMPLE),
        (["queue-2000000050000000001"], QueueKind.PLAIN),
        (["queue-a|0000000001"], QueueKind.PLAIN),
    ],
)
def test_the_kind_of_a_queue_shows_in_its_names(there: list[str], kind: QueueKind | None) -> None:
    assert names.kind_of(there) is kind
    assert names.kind_of(reversed(there)) is kind
