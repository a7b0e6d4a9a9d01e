"""Which message is meant, and which comes next: by place, by id, by what is wanted, in a group; and
what becomes of what cannot be pushed or sent back.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from leaderq.dyno import DynoDeadLetters, DynoQueue, Fields, Message, Unique, by_id
from leaderq.engine import dead_letters
from leaderq.engine.dead_letters import Moved
from leaderq.errors import ConfigurationError
from simulation.scenarios import scene
from simulation.test_dyno_defects import Side, left, sides, texts


def started(text: bytes) -> Message:
    return Message(id="x", payload=text, unique=Unique.STARTED)


@scene(5)
def test_a_message_whose_id_is_another_s_by_now_is_reached_by_its_place(s):
    (a,) = sides(s, "a")
    a.push(started(b"first"))
    (first,) = a.pop(1, 5.0)
    a.push(started(b"second"))
    assert a.pop_where(lambda one: one.payload == b"first") is None
    a.who.do(first.release)
    s.run(0.1)
    (shown,) = [one for one in a.peek(2) if one.payload == b"first"]
    assert (shown.id, shown.place) == ("x", first.place)
    assert a.get(shown.place).payload == b"first"
    assert a.get("x").payload == b"second"
    assert a.set_timeout(shown.place, 0)
    again = a.pop_where(lambda one: one.payload == b"first")
    assert again.payload == b"first"
    a.who.do(again.release)
    assert a.finish(shown.place)
    assert not a.remove(shown.place)
    assert [one.payload for one in a.who.do(lambda: list(a.queue.all_messages()))] == [b"second"]
    (second,) = a.pop(1, 5.0)
    a.who.do(second.ack)
    assert left(s) == []


@scene(5)
def test_what_is_wanted_comes_in_the_order_of_pop(s):
    (a,) = sides(s, "a", shards=("x", "y"))
    a.push(Message(payload=b"delayed, first", timeout_s=1.0, shard="x"))
    a.push(Message(payload=b"later", shard="x"))
    a.push(Message(payload=b"worse", priority=5, shard="x"))
    a.push(Message(payload=b"far", timeout_s=100.0, shard="y"))
    a.push(Message(payload=b"better", priority=4, shard="y", headers={"to": "me"}))
    s.run(1.5)
    found = [a.pop_where(lambda one: True) for _ in range(5)]
    said = [None if one is None else one.payload for one in found]
    assert said == [b"delayed, first", b"later", b"better", b"worse", None]
    a.who.do(found[2].release)
    assert a.pop_where(Fields(headers={"to": "you"})) is None
    assert a.pop_where(Fields(headers={"to": "me"}, priority=4)).payload == b"better"


@scene(5)
def test_an_urgent_message_of_a_group_takes_its_group_along(s):
    (a,) = sides(s, "a")
    a.pop(1)
    a.push([Message(payload=b"head", group="g", priority=50)])
    a.push([Message(payload=b"other", priority=10) for _ in range(3)])
    a.push([Message(payload=b"urgent", group="g")])
    s.run(0.1)
    (head,) = a.pop(1, 5.0)
    assert head.payload == b"head"
    a.who.do(head.ack)
    s.run(0.1)
    assert texts(a.pop(2, 5.0)) == ["urgent", "other"]


@scene(2)
def test_one_bad_message_of_many_is_told_in_its_place(s):
    def put(body: bytes) -> str:
        if body.endswith(b"!"):
            raise OSError("full")
        return "1"

    def strategy(shards: object, one: Message) -> str:
        return {b"odd": "nowhere"}.get(one.payload) or "0"

    store = SimpleNamespace(put=put, get=bytes, delete=bytes, ages=list)
    (a,) = sides(s, "a", body_store=store, body_bytes=3, strategy=strategy)
    given = [Message(payload=one) for one in (b"good", b"bad!", b"odd", b"also good")]
    found = a.push_each([*given[:2], "no message", *given[2:]])
    assert [type(one) for one in found] == [str, OSError, *[ConfigurationError] * 2, str]
    with pytest.raises(OSError, match="full"):
        a.push(given)
    assert a.size() == 4


def test_an_id_that_cannot_be_one_is_refused_with_the_message():
    assert Message(id="\u5b57" * 22).id
    for id in ("\u5b57" * 23, "x" * 201):
        with pytest.raises(ConfigurationError, match="200 bytes, where a letter outside ASCII"):
            Message(id=id)


def test_a_shard_by_an_id_needs_an_id():
    with pytest.raises(ConfigurationError, match="give it an id"):
        by_id(["a"], Message())


def dead(a: Side, *messages: Message) -> DynoDeadLetters:
    a.push(list(messages))
    for one in a.pop(len(messages), 5.0, least=len(messages)):
        a.who.do(one.kill)
    letters: DynoDeadLetters = a.who.do(lambda: a.queue.dead_letters)
    return letters


@scene(2)
def test_a_letter_whose_id_is_taken_stays_and_is_told(s):
    (a,) = sides(s, "a")
    letters = dead(a, Message(id="x", payload=b"old"), Message(payload=b"nameless"))
    a.push(Message(id="x", payload=b"new"))
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead_letters.log, "warning", lambda said, *values: told.append(said % values))
        assert a.who.do(letters.requeue) == Moved(1)
    assert len(told) == 1
    assert "its id is another message's letter=/d/shards/0/dead/" in told[0]
    assert sorted(texts(a.pop(2, 5.0, least=2))) == ["nameless", "new"]
    assert a.who.do(letters.requeue) == Moved(0)
    assert a.who.do(letters.drop) == Moved(1)


@scene(2)
def test_a_letter_of_a_shard_with_a_long_name_is_sent_back(s):
    (a,) = sides(s, "a", shards=("s" * 170,))
    letters = dead(a, Message(payload=b"x"))
    assert a.who.do(letters.requeue) == Moved(1)
    (one,) = a.pop(1, 5.0)
    assert a.get(one.place).id == one.id == one.place


@pytest.mark.parametrize("root", ["/", "/zookeeper", "/zookeeper/quota/q"])
@scene(1)
def test_what_is_not_the_user_s_cannot_be_a_queue(s, root):
    (who,) = s.guests("a")
    with pytest.raises(ConfigurationError, match="one of its own"):
        who.do(lambda: DynoQueue(who.session, root))
