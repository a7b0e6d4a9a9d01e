"""What a candidate does about what it learns: a table, without threads, clocks or sockets.

``step(role, signal) -> (role, effects)``. The candidate's thread feeds it one signal at a time and carries out the effects; a
role is assigned nowhere else. A pair that is not in the table changes nothing: a watch that fires late, an acknowledgement
after the end.

    RESTING --STAND--> ENLISTING --ENLISTED--> WAITING --FIRST--> CLAIMING --WON--> LEADING <--> SUSPECT
                                                                                       |  (silence)  |
                     RESTING <--RELEASED-- RELEASING <--HANDED_OVER-- ENDING <---------+--- told ----+
                                               ^---------HANDED_OVER-- OUSTED <--- lease over, fenced, session lost

Leadership is held in LEADING, SUSPECT and ENDING, and in no other role. In ENDING the lease is kept up, so that nobody can lead
before the career's code has returned; in OUSTED it is lost and only that code's return is awaited. The znode is given back in
RELEASING, never before (spec: stop before release).
"""

from __future__ import annotations

from enum import Enum, auto

from leaderq.term import Reason


class Role(Enum):
    """Where a candidate stands."""

    RESTING = auto()
    ENLISTING = auto()
    WAITING = auto()
    CLAIMING = auto()
    LEADING = auto()
    SUSPECT = auto()
    ENDING = auto()
    OUSTED = auto()
    RELEASING = auto()

    @property
    def holds_term(self) -> bool:
        """Whether a lease is to be kept up."""
        return self in _HOLDING


_HOLDING = frozenset({Role.LEADING, Role.SUSPECT, Role.ENDING})


class Signal(Enum):
    """What a candidate learns."""

    STAND = auto()
    WITHDRAW = auto()
    TOLD = auto()  # to end the term: by an operator, by the runner
    HANDED_OVER = auto()  # the career's code has returned
    CONNECTED = auto()
    SUSPENDED = auto()
    LOST = auto()  # the session
    STIRRED = auto()  # a watch fired, or was lost
    RETRY = auto()  # the time to try again, or to look again, has come
    FAILED = auto()  # the last effect did not get through; its outcome may be unknown
    ENLISTED = auto()
    BEHIND = auto()
    FIRST = auto()
    ABSENT = auto()  # own znode is not there
    PASSED_OVER = auto()  # an operator wants somebody behind us to lead
    WON = auto()
    BEATEN = auto()
    HEARD = auto()  # a renewal was acknowledged
    LATE = auto()
    LEASE_OVER = auto()
    FENCED = auto()
    GONE = auto()  # the leader's znode was deleted under its feet
    RELEASED = auto()


class Effect(Enum):
    """What a candidate does."""

    ENLIST = auto()
    REQUEUE = auto()  # give up the place and enlist again, at the end of the line
    SURVEY = auto()
    CLAIM = auto()
    BEGIN_TERM = auto()
    RENEW = auto()
    PAUSE = auto()
    RESUME = auto()
    WIND_UP = auto()
    DEPOSE_SESSION = auto()
    DEPOSE_LEASE = auto()
    DEPOSE_FENCED = auto()
    DEPOSE_NODE_DELETED = auto()
    DROP_CONNECTION = auto()  # a silent connection: make kazoo notice
    RELEASE = auto()
    RETRY_SOON = auto()
    LOOK_LATER = auto()  # a timed look backs every watch
    REST = auto()

    @property
    def deposes_for(self) -> Reason | None:
        """The reason with which this effect ends a term at once."""
        return _REASONS.get(self)


_REASONS = {
    Effect.DEPOSE_SESSION: Reason.SESSION,
    Effect.DEPOSE_LEASE: Reason.LEASE,
    Effect.DEPOSE_FENCED: Reason.FENCED,
    Effect.DEPOSE_NODE_DELETED: Reason.NODE_DELETED,
}

Decision = tuple[Role, tuple[Effect, ...]]

_OUSTED_BY: dict[Signal, Decision] = {
    # The socket of a silent connection is shut: busy, kazoo would believe in it for ever (spec, fact 1).
    Signal.LEASE_OVER: (Role.OUSTED, (Effect.DEPOSE_LEASE, Effect.DROP_CONNECTION)),
    Signal.LOST: (Role.OUSTED, (Effect.DEPOSE_SESSION,)),
    Signal.FENCED: (Role.OUSTED, (Effect.DEPOSE_FENCED,)),
    Signal.GONE: (Role.OUSTED, (Effect.DEPOSE_NODE_DELETED,)),
}
_LET_GO: Decision = (Role.RELEASING, (Effect.RELEASE,))
_TOLD: Decision = (Role.ENDING, (Effect.WIND_UP,))
_LOOK: Decision = (Role.WAITING, (Effect.SURVEY,))

_TABLE: dict[Role, dict[Signal, Decision]] = {
    Role.RESTING: {
        Signal.STAND: (Role.ENLISTING, (Effect.ENLIST,)),
    },
    Role.ENLISTING: {
        Signal.ENLISTED: _LOOK,
        Signal.FAILED: (Role.ENLISTING, (Effect.RETRY_SOON,)),
        Signal.RETRY: (Role.ENLISTING, (Effect.ENLIST,)),
        Signal.CONNECTED: (Role.ENLISTING, (Effect.ENLIST,)),
        Signal.WITHDRAW: _LET_GO,
    },
    Role.WAITING: {
        Signal.BEHIND: (Role.WAITING, (Effect.LOOK_LATER,)),
        Signal.FIRST: (Role.CLAIMING, (Effect.CLAIM,)),
        Signal.ABSENT: (Role.ENLISTING, (Effect.ENLIST,)),
        Signal.PASSED_OVER: (Role.ENLISTING, (Effect.REQUEUE,)),
        Signal.STIRRED: _LOOK,
        Signal.RETRY: _LOOK,
        Signal.CONNECTED: _LOOK,
        Signal.FAILED: (Role.WAITING, (Effect.RETRY_SOON,)),
        # A new session owns nothing of the old one: never adopt its znode (CURATOR-696). CONNECTED follows.
        Signal.LOST: (Role.ENLISTING, (Effect.RETRY_SOON,)),
        Signal.WITHDRAW: _LET_GO,
    },
    Role.CLAIMING: {
        Signal.WON: (Role.LEADING, (Effect.BEGIN_TERM,)),
        Signal.BEATEN: _LOOK,
        # The reply may be lost, not the claim: the next survey reads who won.
        Signal.FAILED: (Role.WAITING, (Effect.RETRY_SOON,)),
        Signal.LOST: (Role.ENLISTING, (Effect.RETRY_SOON,)),
        Signal.WITHDRAW: _LET_GO,
    },
    Role.LEADING: {
        **_OUSTED_BY,
        Signal.SUSPENDED: (Role.SUSPECT, (Effect.PAUSE,)),
        Signal.LATE: (Role.SUSPECT, (Effect.PAUSE,)),
        Signal.TOLD: _TOLD,
        Signal.WITHDRAW: _TOLD,
        Signal.HANDED_OVER: _LET_GO,
    },
    Role.SUSPECT: {
        **_OUSTED_BY,
        Signal.CONNECTED: (Role.SUSPECT, (Effect.RENEW,)),
        Signal.HEARD: (Role.LEADING, (Effect.RESUME,)),
        Signal.TOLD: _TOLD,
        Signal.WITHDRAW: _TOLD,
        Signal.HANDED_OVER: _LET_GO,
    },
    Role.ENDING: {
        **_OUSTED_BY,
        Signal.CONNECTED: (Role.ENDING, (Effect.RENEW,)),
        Signal.HANDED_OVER: _LET_GO,
    },
    Role.OUSTED: {
        Signal.HANDED_OVER: _LET_GO,
    },
    Role.RELEASING: {
        Signal.RELEASED: (Role.RESTING, (Effect.REST,)),
        Signal.FAILED: (Role.RELEASING, (Effect.RETRY_SOON,)),
        Signal.RETRY: _LET_GO,
        Signal.CONNECTED: _LET_GO,
        # Ephemeral znodes die with their session; nothing is left to give back.
        Signal.LOST: (Role.RESTING, (Effect.REST,)),
        # Not to be waited for: enlisting sweeps what the release could not delete.
        Signal.STAND: (Role.ENLISTING, (Effect.REST, Effect.ENLIST)),
    },
}


def step(role: Role, signal: Signal) -> Decision:
    """The role that follows, and what is to be done about it, in order."""
    return _TABLE[role].get(signal, (role, ()))
