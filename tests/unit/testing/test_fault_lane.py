"""What becomes of the bytes of one direction, without sockets and clocks."""

from __future__ import annotations

from functools import partial

from leaderq.testing.fault_proxy import (
    Lane,
    LaneDecision,
    LoseReplies,
    LoseReplyTo,
    Rule,
    Weather,
)

ALL_PASS = Rule()


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def lane(rule: Rule = ALL_PASS, weather: Weather | None = None, connection: object = 1) -> Lane:
    return Lane(weather or Weather(), partial(rule.reply, connection))


def flow(one: Lane, *chunks: bytes, now: float = 0.0) -> bytes:
    for chunk in chunks:
        one.feed(chunk, now=now)
    data = one.due(now=now)
    one.sent(len(data))
    return data


def test_frames_pass_whole_and_what_is_left_of_one_at_the_end() -> None:
    one = lane()
    assert flow(one, frame(b"hello")[:6]) == b""
    assert flow(one, frame(b"hello")[6:] + frame(b"more")[:5]) == frame(b"hello")
    one.end(now=0.0)
    assert flow(one) == frame(b"more")[:5]


def test_the_next_reply_is_lost_whole_whatever_the_chunks() -> None:
    stream = frame(b"one") + frame(b"two") + frame(b"three")
    for cut in range(1, len(stream)):
        one = lane(LoseReplies(1, cut=True))
        assert flow(one, stream[:cut], stream[cut:]) == b""
        assert one.must_cut
        assert one.has_lost


def test_a_predicate_chooses_the_reply() -> None:
    one = lane(LoseReplies(lambda body: body == b"b", cut=True))
    assert flow(one, frame(b"a") + frame(b"b") + frame(b"c")) == frame(b"a")
    assert one.must_cut


def test_only_the_reply_to_the_chosen_request_of_that_connection_is_lost() -> None:
    rule = LoseReplyTo(lambda body: body.endswith(b"create"))
    assert rule.request("mine", b"0001read") is LaneDecision.PASS
    assert rule.request("mine", b"0002create") is LaneDecision.PASS
    assert rule.request("mine", b"0003create") is LaneDecision.PASS
    assert rule.reply("mine", b"0001ok") is LaneDecision.PASS
    assert rule.reply("other", b"0002ok") is LaneDecision.PASS
    assert rule.reply("mine", b"0002ok") is LaneDecision.LOSE_AND_CUT
    assert rule.reply("mine", b"0002ok") is LaneDecision.PASS
    assert rule.reply("mine", b"0003ok") is LaneDecision.PASS


def test_several_replies_are_lost_and_the_cut_comes_with_the_last() -> None:
    one = lane(LoseReplies(2, cut=True))
    assert flow(one, frame(b"a")) == b""
    assert not one.must_cut
    assert flow(one, frame(b"b")) == b""
    assert one.must_cut


def test_delayed_bytes_are_due_later_and_in_order() -> None:
    weather = Weather(delay_s=2.0)
    one = lane(weather=weather)
    one.feed(frame(b"a"), now=1.0)
    weather.delay_s = 0.0
    one.feed(frame(b"b"), now=1.5)
    assert one.due(now=2.9) == b""
    assert one.next_due == 3.0
    assert one.due(now=3.0) == frame(b"a") + frame(b"b")


def test_swallowed_bytes_are_lost_also_those_on_their_way() -> None:
    weather = Weather(delay_s=5.0)
    one = lane(weather=weather)
    one.feed(frame(b"a"), now=0.0)
    weather.is_swallowed = True
    assert one.due(now=9.0) == b""
    assert one.has_lost
    assert one.is_empty


def test_partly_sent_bytes_are_not_sent_twice() -> None:
    one = lane()
    one.feed(frame(b"abcdef"), now=0.0)
    one.feed(frame(b"x"), now=0.0)
    whole = one.due(now=0.0)
    one.sent(5)
    assert one.due(now=0.0) == whole[5:]
