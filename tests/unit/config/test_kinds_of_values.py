from __future__ import annotations

from pathlib import Path

import pytest

from leaderq.config import kinds
from leaderq.config.kinds import FILE, LISTENING, NAME, SWITCH, TEXT, ZNODE_PATH, count, seconds

SERVERS, ENSEMBLE = kinds.addresses(9092), kinds.addresses(2181, chroot=True)
LONGEST = "x" * kinds._LONGEST_NAME


@pytest.mark.parametrize(
    ("kind", "given", "taken"),
    [
        (seconds(0, 10), 0, 0.0),
        (seconds(0, 10), 10, 10.0),
        (kinds.number(0.5, 2), 2.0, 2.0),
        (count(1, 5), 5, 5),
        (kinds.choice("PLAIN", "Ssl"), "plain", "PLAIN"),
        (kinds.choice("PLAIN", "Ssl"), "SSL", "Ssl"),
        (SERVERS, " a:1 , b:65535 ", "a:1,b:65535"),
        (SERVERS, "[::1]", "[::1]:9092"),
        *((SERVERS, one, one) for one in ("[::1]:5", "[fe80::1%eth0]:5")),
        (SERVERS, "a:00080", "a:80"),
        (ENSEMBLE, "a/", "a:2181"),
        (ENSEMBLE, "a,b/x/y", "a:2181,b:2181/x/y"),
        (LISTENING, "8080", "127.0.0.1:8080"),
        (LISTENING, "0", "127.0.0.1:0"),
        *((LISTENING, one, one) for one in ("0.0.0.0:0", "[::1]:80")),
        (TEXT, LONGEST, LONGEST),
        (NAME, "...", "..."),
        *((ZNODE_PATH, one, one) for one in ("/a", "/a/zookeeper")),
        (kinds.SECRET, " x\n", " x\n"),
        (FILE, "a/b", Path("a/b")),
        (FILE, Path("a"), Path("a")),
        *((SWITCH, one, one) for one in (True, False)),
    ],
)
def test_a_value_is_taken_and_written_in_one_way(kind, given, taken):
    found = kind.check(given)
    assert (found, type(found)) == (taken, type(taken)) or isinstance(found, Path)


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        *((seconds(0, 10), s, "is out of range; choose from 0 to 10 seconds") for s in (10.1, -1)),
        (seconds(0, 10), "5", "is not a number; write seconds"),
        (seconds(0, 10), True, "is not a number"),
        *((seconds(0, 10), float(s), "is not a finite number") for s in ("nan", "inf", "-inf")),
        (seconds(0, 10), 10**400, "is out of range"),
        (kinds.number(0, 1), 2, "is out of range; choose from 0 to 1$"),
        (kinds.number(0, 1), "x", "is not a number; write a plain number"),
        (count(1, 5), 0, "is out of range; choose from 1 to 5$"),
        (count(1, 10_000_000), 0, "choose from 1 to 10000000$"),
        (count(0, 5), True, "is not a whole number"),
        (count(1, 5), 2.0, "is not a whole number"),
        (kinds.choice("a", "b"), "c", "is not a choice; write one of a, b"),
        (kinds.choice("a"), 5, "is not text"),
        *((SERVERS, one, "has an empty address") for one in ("", "a,,b")),
        (SERVERS, "http://a", "is a URL"),
        (SERVERS, "a/x", "has a path behind"),
        (ENSEMBLE, "a/x,b", "before the last address"),
        *((ENSEMBLE, f"a/{one}", "has no usable chroot") for one in ("x//y", "x/", "./y", "x/..")),
        (SERVERS, "a:" + "9" * 5000, "has no usable port"),
        *((SERVERS, f"a:{one}", "has no usable port") for one in ("0", "65536", "\u0665", "x1")),
        (SERVERS, "::1", "more than one ':'"),
        *((SERVERS, x, "no usable host") for x in ("a b:1", "[::1", "-a:5", "[::1]5", "user@a:1")),
        *((LISTENING, one, "is not one address") for one in ("a", "a:1,b:2", "a/b:1", "-1")),
        *((LISTENING, one, "no usable host") for one in ("\u0665", ":8080")),
        (LISTENING, ":0", "no usable host name in ':0'"),
        (LISTENING, "65536", "a port is a number from 0 to 65535"),
        (TEXT, LONGEST + "x", "is longer than"),
        (TEXT, " a", "white space"),
        (TEXT, "a\nb", "control character"),
        (TEXT, "", "is empty"),
        *((NAME, one, "cannot be part") for one in (".", "..", "a/b")),
        *((ZNODE_PATH, one, "is not an absolute") for one in ("a/b", "")),
        *((ZNODE_PATH, one, "is not a znode path") for one in ("/", "/a/./b", "/..", "/a\n")),
        (ZNODE_PATH, "/zookeeper/x", "keeps for itself"),
        (kinds.SECRET, "", "is empty"),
        (kinds.SECRET, "x\udcff", "is not UTF-8 text; write it in UTF-8"),
        (FILE, "", "is empty"),
        (FILE, "a\0b", "is not a file name"),
        (SWITCH, "true", "neither on nor off"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_a_remedy(kind, given, why):
    with pytest.raises(kinds.InvalidValue, match=why) as refused:
        kind.check(given)
    assert str(refused.value) == f"{refused.value.why}; {refused.value.remedy}"


def test_the_home_of_a_user_who_is_not_known_is_refused():
    with pytest.raises(kinds.InvalidValue, match="a home that is not known; write the whole path"):
        kinds.expanded("~nobody-of-that-name/x")


def test_a_text_becomes_a_value_or_stays_to_be_refused():
    assert (seconds(0, 9).from_text("2.5"), seconds(0, 9).from_text("x")) == (2.5, "x")
    assert (kinds.number(0, 9).from_text("2.5"), kinds.number(0, 9).from_text("x")) == (2.5, "x")
    assert (count(0, 9).from_text("2"), count(0, 9).from_text("2.5")) == (2, "2.5")
    assert TEXT.from_text("a") == "a"


def test_words_for_on_and_off_and_no_others():
    assert [SWITCH.from_text(word) for word in ("1", "true", "YES", " on ")] == [True] * 4
    assert [SWITCH.from_text(word) for word in ("0", "False", "no", "off")] == [False] * 4
    with pytest.raises(kinds.InvalidValue, match="write one of 1, true"):
        SWITCH.from_text("2")


def test_a_kind_is_shown_by_what_it_takes():
    every = (seconds(1, 2), kinds.number(1, 2), count(1, 2), kinds.choice("a", "b"), SERVERS)
    shown = ["SECONDS", "NUMBER", "N", "a|b", "HOST:PORT[,...]"]
    assert [kind.metavar for kind in every] == shown


def test_servers_may_be_listed():
    assert SERVERS.check(["a", "b:1"]) == "a:9092,b:1"
    assert ENSEMBLE.check(["a", "b:1/p"]) == "a:2181,b:1/p"
    with pytest.raises(kinds.InvalidValue, match="is not text"):
        SERVERS.check(["a", 3])


def test_the_greatest_lengths_are_as_documented():
    assert (kinds._HIGHEST_PORT, kinds.LOOPBACK) == (65535, "127.0.0.1")
    assert kinds._LONGEST_NAME == 200


SOME_TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
IN_ANY_CASE = {"type": "string", "pattern": "^([aA][nN][yY]|[aA]-1)$"}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (TEXT, SOME_TEXT),
        (seconds(0, 10), {"type": "number", "minimum": 0, "maximum": 10}),
        (count(1, 5), {"type": "integer", "minimum": 1, "maximum": 5}),
        (kinds.choice("any", "a-1"), {"anyOf": [{"enum": ["any", "a-1"]}, IN_ANY_CASE]}),
        (SERVERS, {"anyOf": [SOME_TEXT, TEXTS]}),
        (SWITCH, {"type": "boolean"}),
    ],
)
def test_what_editors_are_told_of_a_kind(kind, schema):
    assert kind.schema == schema
