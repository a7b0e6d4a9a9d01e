from __future__ import annotations

import json
from dataclasses import replace

import pytest

from leaderq.errors import Reason
from leaderq.events import CareerError, CoolingOff, EventBus, Stage, TermEnded
from leaderq.observability import health, http

TERM = health.TermState(number=7, stage=Stage.EXECUTION, lease_s=5.0, paused=False, ending=False)
FOLLOWER = health.RunnerState(
    career="c",
    candidate="a",
    session="connected",
    timeout_s=10.0,
    role="waiting",
    silent_s=0.0,
    stopping=False,
    ended=False,
    units=0,
    term=None,
)
LEADER = replace(FOLLOWER, role="leading", term=TERM)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (FOLLOWER, "live ready"),
        (LEADER, "live ready leads"),
        *[(replace(FOLLOWER, session=word), "live") for word in ("suspended", "closed")],
        *[(replace(FOLLOWER, role=role), "live") for role in ("idle", "suspect", "releasing")],
        (replace(LEADER, stopping=True), "live leads"),
        # a process is dead only if it would never lead again
        (replace(FOLLOWER, ended=True), ""),
        (replace(FOLLOWER, silent_s=health.DEAD_AFTER_S - 1), "live ready"),
        (replace(FOLLOWER, silent_s=health.DEAD_AFTER_S + 1), "ready"),
        (replace(FOLLOWER, silent_s=health.DEAD_AFTER_S + 1, timeout_s=40.0), "live ready"),
        # the leader is who works in a term that may be trusted
        (replace(LEADER, role="suspect", session="suspended"), "live leads"),  # on its lease
        (replace(LEADER, role="ousted", term=replace(TERM, lease_s=0.0)), "live"),
        (replace(LEADER, term=replace(TERM, lease_s=0.0)), "live ready"),
        (replace(LEADER, term=replace(TERM, ending=True)), "live ready"),
        (replace(LEADER, term=replace(TERM, paused=True)), "live ready leads"),  # by an operator
        (replace(LEADER, term=replace(TERM, stage=Stage.INAUGURATION)), "live ready"),
    ],
)
def test_who_is_alive_who_can_lead_and_who_leads(state, expected):
    asked = {"live": health.why_dead, "ready": health.why_unready, "leads": health.why_no_leader}
    assert " ".join(word for word, why in asked.items() if why(state) is None) == expected


def test_the_status_tells_how_the_last_term_ended_and_why_nobody_leads():
    events = EventBus()
    state = FOLLOWER
    asked = health.Health(events, lambda: state)
    assert asked.status()["last_term"] is None
    events.publish(CareerError("c", "a", 6, "execution", ValueError("secret")))
    events.publish(TermEnded("c", "a", 6, Reason.FAILED, True))
    events.publish(CoolingOff("c", "a", 60.0, 2, "the career failed"))
    state = replace(FOLLOWER, role="idle")
    status = asked.status()
    last = status["last_term"]
    assert (last["number"], last["reason"], last["error"]) == (6, "failed", "ValueError")
    assert 0 < status["cool_off"].pop("left_s") <= 60.0
    assert status["cool_off"] == {"failures": 2, "why": "the career failed"}
    assert "cools off" in status["why"]
    assert (status["live"], status["ready"], status["leader"]) == (True, False, False)
    assert "secret" not in str(status)


def test_several_careers_answer_together_and_by_name():
    states = [LEADER, replace(FOLLOWER, career="b c")]
    healths = [health.Health(EventBus(), lambda at=at: states[at]) for at in range(2)]
    routes = http.health_routes(*healths)

    def said(path: str) -> tuple[int, str]:
        reply = routes[path]()
        assert isinstance(reply, http.HttpReply)
        return reply.status, str(reply.body)

    assert [said(path)[0] for path in ("/livez", "/readyz", "/leader")] == [200, 200, 503]
    assert said("/leader")[1] == "not leader: b c: it does not lead\n"
    assert said("/leader/c") == (200, "leader\n")
    assert said("/leader/b%20c") == (503, "not leader: it does not lead\n")
    states[1] = replace(states[1], ended=True)  # by itself: the other one must not be ended for it
    paths = ("/livez", "/livez/b%20c", "/readyz", "/readyz/c")
    assert [said(path)[0] for path in paths] == [200, 503, 503, 200]
    told = json.loads(said("/status")[1])
    assert (told["live"], told["ready"], told["leader"]) == (True, False, False)
    assert told["careers"]["c"] == json.loads(said("/status/c")[1])
    states[0] = replace(LEADER, silent_s=health.DEAD_AFTER_S * 2)
    assert said("/livez")[0] == 503
    states[0] = replace(LEADER, ended=True)
    assert said("/livez")[0] == 503
