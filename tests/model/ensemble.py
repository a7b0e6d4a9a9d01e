"""What the ensemble does with each request, and the rules that it must never see broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leaderq.election.decision import Decision, Input, Role, step
from model.search import Violated
from model.state import Candidate, Draft, Kind, Mark, Node, Request


@dataclass(frozen=True)
class Program:
    """The program's part: the table, the lease, and where it goes beyond both.

    A negative control changes one of these.
    """

    decide: Callable[[Role, Input], Decision] = step
    from_answer: bool = False  # else a lease is renewed from when the write was sent
    looks_before_unit: bool = True  # at the clock
    confirms: bool = True  # a claim whose answer was lost, which it finds in the record
    records: bool = True  # a claim writes the record of its term
    compares_session: bool = True  # a znode is mine by its mark and by its session
    tells_first: bool = True  # the term, before a session is given up
    looks_by_time: bool = True  # beside each watch


def carried_out(rules: Any, draft: Draft, one: Candidate, request: Request) -> Any:  # noqa: C901
    """Carry out ``request`` of ``one``, in the world and for the program of the model ``rules``;
    returns the reply.
    """
    stands = request.node in draft.standing()
    passes = rules.world.passes(request.node, draft.standing())
    match request.kind:
        case Kind.ENLIST:
            return _enlisted(draft, one, request)
        case Kind.LOOK:
            return _seen(draft, one, request)
        case Kind.WATCH:
            one.watching = request.node if stands else one.watching
            return Input.BEHIND if stands else Input.CHANGED
        case Kind.CLAIM:
            return _claimed(rules, draft, request) if passes else Input.BEATEN
        case Kind.LEAVE:
            draft.remove(lambda node: node.who == one.who and node.mark != Mark.FORGOTTEN)
            return Input.RELEASED
        case Kind.RELEASE:
            if stands:
                _must_be_newest(draft, request, "the end of an old term is recorded")
                draft.record = (draft.record[0], draft.record[1], True)
                draft.remove(lambda node: node.id == request.node)
            return Input.RELEASED
        case Kind.RENEW:
            return Input.HEARD if passes else Input.GONE
        case Kind.WRITE:
            if passes:
                _must_be_newest(draft, request, "a fenced write of an old term passes")
            return Input.HEARD if passes else Input.FENCED


def _enlisted(draft: Draft, one: Candidate, request: Request) -> Input:
    stands = any(each.who == one.who and each.mark == Mark.PRESENT for each in draft.line)
    if not request.awaited or request is one.overdue:
        stands = False  # the list was read before: only the creation is carried out now
    else:
        draft.remove(lambda node: node.who == one.who and node.mark == Mark.LEFT)
    if not stands:
        made = Node(draft.unused_node(), one.session, one.who, request.mark)
        draft.line = (*draft.line, made)
    return Input.ENLISTED


def _seen(draft: Draft, one: Candidate, request: Request) -> tuple[Any, ...]:
    """Own znode, who is ahead, the record, and the session of the znode."""
    own = [each for each in draft.line if each.who == one.who and each.mark == Mark.PRESENT]
    if not own or request.mark == Mark.LEFT:
        return (0, 0, draft.record, 0)
    surplus = {each.id for each in own[1:]}
    draft.remove(lambda node: node.id in surplus)
    at = draft.line.index(own[0])
    ahead = draft.line[at - 1].id if at else 0
    return (own[0].id, ahead, draft.record, own[0].session)


def _claimed(rules: Any, draft: Draft, request: Request) -> Input:
    if request.seen[1] == request.node and rules.program.confirms:
        return Input.WON
    if not rules.world.is_version(request.seen, draft.record):
        return Input.BEATEN
    if draft.record[1] == request.node:
        raise Violated("a claim that had been carried out is made a second time")
    if rules.program.records:
        draft.record = (draft.record[0] + 1, request.node, False)
    return Input.WON


def _must_be_newest(draft: Draft, request: Request, what: str) -> None:
    if max(draft.begun, draft.record[0]) > request.seen[0]:
        raise Violated(what)
