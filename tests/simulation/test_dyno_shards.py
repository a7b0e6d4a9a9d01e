"""Shards, lease time and ageing stand in the root: a queue grows and shrinks while it runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from leaderq.dyno import Message
from leaderq.dyno.layout import name_prefix
from leaderq.dyno.shards import QueueSettings, hashed
from leaderq.errors import ConfigurationError
from simulation.scenarios import scene
from simulation.test_dyno_defects import D, sides, texts


@scene(10)
def test_a_shard_that_is_taken_away_is_served_until_it_is_empty_and_then_vanishes(s):
    a, b = sides(s, "ab", shards=("x", "y"))
    b.push([Message(payload=b"1", shard="y"), Message(payload=b"2", shard="y", timeout_s=40)])
    a.who.do(a.pop(1, 5.0)[0].release)
    assert b.configure(shards=("x", "z")).shards == ("x", "z")
    with pytest.raises(ConfigurationError):
        b.push(Message(payload=b"3", shard="y"))
    placed = b.push([Message(payload=b"3") for _ in range(20)])
    assert {one.partition("/")[0] for one in placed} == {"x", "z"}
    found = a.pop(30, 60.0, least=22)
    found += a.pop(30, 60.0, least=22 - len(found))
    assert len(found) == 22
    a.ack(found)
    s.run(70.0)
    assert a.who.do(lambda: a.who.session.children(f"{D}/shards")) == ["x", "z"]
    assert list(b.shard_sizes()) == ["x", "z"]
    b.push(Message(payload=b"4"))
    assert texts(a.pop(1, 5.0)) == ["4"]


@scene(5)
def test_a_push_to_a_shard_that_just_vanished_is_delivered(s):
    a, b = sides(s, "ab", shards=("x", "y"))
    b.push(Message(payload=b"1", shard="x"))
    a.pop(1, 5.0)
    y = a.queue._paths.shard("y")
    s.ask(lambda beside: [beside.delete(part) for part in (*y.parents, y.base)])
    b.push(Message(payload=b"2", shard="y"))
    assert texts(a.pop(1, 5.0)) == ["2"]


@scene(5)
def test_the_messages_of_a_group_stay_in_one_shard_when_a_queue_grows(s):
    a, b = sides(s, "ab", shards=("x", "y"))
    groups = [f"g{number}" for number in range(20)]
    b.push([Message(payload=b"1", group=one) for one in groups])
    before = {one.group: one.shard for one in b.who.do(lambda: list(b.queue.all_messages()))}
    assert before == {one: hashed(("x", "y"), one) for one in groups}
    a.configure(shards=("x", "y", "z", "w"))
    b.push([Message(payload=b"2", group=one) for one in groups])
    after = b.who.do(lambda: list(b.queue.all_messages()))
    assert {one.group: one.shard for one in after if one.payload == b"2"} == before


@scene(5)
def test_who_gives_no_lease_takes_that_of_the_queue_which_may_change(s):
    (a,) = sides(s, "a", lease_s=30.0, ageing_s=7.0)
    a.push([Message(payload=b"%d" % number) for number in range(3)])
    b, c = *sides(s, "b"), *sides(s, "c", lease_s=5.0)
    assert (b.pop(1, 5.0)[0].lease_s, c.pop(1, 5.0)[0].lease_s) == (30.0, 5.0)
    found = c.configure(lease_s=12.0, ageing_s=0)
    assert (found.lease_s, found.ageing_s) == (12.0, None)
    s.run(1.0)
    assert b.pop(1, 5.0)[0].lease_s == 12.0
    assert b.queue.lease_s == 12.0
    for wrong in (lambda: c.configure(lease_s=0.05), lambda: b.pop(1, lease_s=-1)):
        with pytest.raises(ConfigurationError, match="lease_s"):
            wrong()


@scene(5)
def test_a_queue_of_a_former_version_is_taken_over_as_it_is(s):
    for part in ("messages", "claims", "rests", "dead"):
        s.ask(lambda one, part=part: [one.ensure_path(f"{D}/shards/{x}/{part}") for x in "ab"])
    frame = b"DQ1\n\x00\x00\x00\x02{}old"
    path = f"{D}/shards/b/messages/{name_prefix(0, 0)}"
    s.ask(lambda beside: beside.create(path, frame, sequential=True))
    new, late = sides(s, "nl")
    new.push(Message(payload=b"new", shard="a"))
    assert sorted(texts(late.pop(2, 5.0, least=2))) == ["new", "old"]
    assert json.loads(s.cluster.znodes()[D])["shards"] == ["a", "b"]


@scene(3)
@pytest.mark.parametrize("foreign", ["x" * 201, "%41", "a%ff"])
def test_a_znode_that_cannot_be_a_shard_of_ours_is_left_alone(s, foreign):
    (a,) = sides(s, "a", shards=("x",))
    a.push(Message(payload=b"1"))
    for part in ("shards", "ids"):
        s.ask(lambda beside, part=part: beside.ensure_path(f"{D}/{part}/{foreign}"))
    (b,) = sides(s, "b")
    assert texts(b.pop(1, 5.0)) == ["1"]
    assert list(b.shard_sizes()) == ["x"]
    assert b.find_stale(repair=True) == []
    assert f"{D}/ids/{foreign}" in s.cluster.znodes()


@scene(3)
def test_what_others_have_written_into_the_root_is_left_alone(s):
    s.ask(lambda beside: beside.create(D, b"somebody's"))
    (a,) = sides(s, "a", shards=("x",))
    a.push(Message(payload=b"1"))
    assert texts(a.pop(1, 5.0)) == ["1"]
    for change in (a.pause, lambda: a.configure(lease_s=5.0)):
        with pytest.raises(ConfigurationError, match='holds b"somebody\'s"'):
            change()
    assert s.cluster.znodes()[D] == b"somebody's"


@scene(3)
def test_messages_are_not_pushed_among_the_items_of_another_kind_of_queue(s):
    s.ask(lambda beside: beside.ensure_path(f"{D}/queue-0000000001"))
    (a,) = sides(s, "a")
    with pytest.raises(ConfigurationError, match="Curator's recipes"):
        a.push(Message(payload=b"1"))


def test_settings_come_back_with_what_a_later_version_has_added():
    data = b'{"dyno":2,"shards":["a","b"],"grouped":1,"lease_s":7.5,"ageing_s":3,"cap":9}'
    found = QueueSettings.read(data)
    assert found == QueueSettings(("a", "b"), 1, 7.5, 3.0, others={"cap": 9})
    assert json.loads(found.packed())["cap"] == 9
    assert QueueSettings.read(found.packed()) == found
    limited = replace(found, is_paused=True, max_messages=5)
    assert QueueSettings.read(limited.packed()) == limited
    plain = b'{"dyno":1,"shards":["a"],"grouped":1,"lease_s":60.0}'
    assert QueueSettings(("a",), 1).packed() == plain


@pytest.mark.parametrize(
    "data",
    [
        *(b"{", b"5", b'{"dyno":1}', b'{"shards":["a"],"grouped":1,"lease_s":60}'),
        b'{"dyno":1,"shards":[5],"grouped":1,"lease_s":60}',
        b'{"dyno":1,"shards":["a"],"grouped":1,"lease_s":-1}',
        b'{"dyno":1,"shards":["%s"],"grouped":1,"lease_s":60}' % (b"a" * 201),
    ],
)
def test_other_data_are_no_settings(data):
    assert QueueSettings.read(data) is None


def test_shards_that_stay_keep_their_order_and_so_do_groups():
    queue = QueueSettings(("a", "b", "c"), 2)
    for names, shards, of_groups in (
        (("a", "b", "c", "d"), ("a", "b", "c", "d"), ("a", "b")),
        (("d", "b"), ("b", "d"), ("b",)),
        (("d", "c"), ("c", "d"), ("c", "d")),
    ):
        found = queue.with_shards(names)
        assert (found.shards, found.of_groups) == (shards, of_groups)
