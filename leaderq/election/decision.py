"""Decides what a candidate does about each signal: a table, without threads, clocks or sockets.

A pair of role and signal that is not in the table changes nothing; for example, a watch that fires
late, or an acknowledgement after the end.

    IDLE --STAND--> ENLISTING --ENLISTED--> WAITING --FIRST--> CLAIMING --WON--> LEADING
    LEADING <--(silence)--> SUSPECT
    LEADING, SUSPECT --told--> ENDING --HANDED_OVER--> RELEASING --RELEASED--> IDLE
    LEADING, SUSPECT, ENDING --lease over, fenced, session lost--> OUSTED --HANDED_OVER--> RELEASING

Leadership is held in LEADING, SUSPECT and ENDING, and in no other role. In ENDING the lease is kept
up, so that nobody else can lead before the career's code has returned. In OUSTED the lease is lost,
and the candidate only waits for that code to return. The znode is released in RELEASING, never
earlier, because the next leader must not start while the code of this one runs (K8, bug 10).
"""

from __future__ import annotations

from enum import Enum, auto


class Role(Enum):
    """The state of a candidate."""

    __hash__ = object.__hash__  # by identity; Enum's own asks for the hash of the name

    IDLE = auto()
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
        """Whether a candidate in this role keeps up a lease."""
        return self in _HOLDING


_HOLDING = (Role.LEADING, Role.SUSPECT, Role.ENDING)


class Input(Enum):
    """An event that a candidate learns of."""

    __hash__ = object.__hash__

    STAND = auto()
    WITHDRAW = auto()
    TOLD = auto()  # to end the term: by an operator, by the runner
    HANDED_OVER = auto()  # the career's code has returned
    CONNECTED = auto()
    SUSPENDED = auto()
    LOST = auto()  # the session
    CHANGED = auto()  # a watch fired, or was lost
    RETRY = auto()  # the time to try again, or to look again, has come
    FAILED = auto()  # the last effect did not get through; its outcome may be unknown
    ENLISTED = auto()
    BEHIND = auto()
    FIRST = auto()
    ABSENT = auto()  # own znode is not there
    PASSED_OVER = auto()  # a candidate behind us should lead: an operator wants it, or it is newer
    WON = auto()
    BEATEN = auto()
    HEARD = auto()  # the session is proven to live
    LATE = auto()
    LEASE_OVER = auto()
    FENCED = auto()
    GONE = auto()  # the leader's znode was deleted under its feet
    RELEASED = auto()


class Effect(Enum):
    """An action of a candidate."""

    __hash__ = object.__hash__

    ENLIST = auto()
    REQUEUE = auto()  # release the place and enlist again, at the end of the line
    SURVEY = auto()
    CLAIM = auto()
    BEGIN_TERM = auto()
    PAUSE = auto()
    RESUME = auto()
    WIND_UP = auto()
    DEPOSE_SESSION = auto()  # as the three below: end the term at once, for this reason
    DEPOSE_LEASE = auto()
    DEPOSE_FENCED = auto()
    DEPOSE_NODE_DELETED = auto()
    DROP_CONNECTION = auto()  # a silent connection: make kazoo notice
    RELEASE = auto()
    RETRY_SOON = auto()
    LOOK_LATER = auto()  # a timed look backs every watch
    SETTLE = auto()  # the term or the candidacy is over: say so


Decision = tuple[Role, tuple[Effect, ...]]

_OUSTED_BY: dict[Input, Decision] = {
    # The socket of a silent connection is shut: busy, kazoo would believe in it for ever (K1 in
    # docs/design/facts.md).
    Input.LEASE_OVER: (Role.OUSTED, (Effect.DEPOSE_LEASE, Effect.DROP_CONNECTION)),
    Input.LOST: (Role.OUSTED, (Effect.DEPOSE_SESSION,)),
    Input.FENCED: (Role.OUSTED, (Effect.DEPOSE_FENCED,)),
    Input.GONE: (Role.OUSTED, (Effect.DEPOSE_NODE_DELETED,)),
}
_RELEASE: Decision = (Role.RELEASING, (Effect.RELEASE,))
_TOLD: Decision = (Role.ENDING, (Effect.WIND_UP,))
_LOOK: Decision = (Role.WAITING, (Effect.SURVEY,))

_TABLE: dict[Role, dict[Input, Decision]] = {
    Role.IDLE: {
        Input.STAND: (Role.ENLISTING, (Effect.ENLIST,)),
    },
    Role.ENLISTING: {
        Input.ENLISTED: _LOOK,
        Input.FAILED: (Role.ENLISTING, (Effect.RETRY_SOON,)),
        Input.RETRY: (Role.ENLISTING, (Effect.ENLIST,)),
        Input.CONNECTED: (Role.ENLISTING, (Effect.ENLIST,)),
        Input.WITHDRAW: _RELEASE,
    },
    Role.WAITING: {
        Input.BEHIND: (Role.WAITING, (Effect.LOOK_LATER,)),
        Input.FIRST: (Role.CLAIMING, (Effect.CLAIM,)),
        Input.ABSENT: (Role.ENLISTING, (Effect.ENLIST,)),
        Input.PASSED_OVER: (Role.ENLISTING, (Effect.REQUEUE,)),
        Input.CHANGED: _LOOK,
        Input.RETRY: _LOOK,
        Input.CONNECTED: _LOOK,
        Input.FAILED: (Role.WAITING, (Effect.RETRY_SOON,)),
        # A new session owns nothing of the old one: never adopt its znode (CURATOR-696). CONNECTED
        # follows.
        Input.LOST: (Role.ENLISTING, (Effect.RETRY_SOON,)),
        Input.WITHDRAW: _RELEASE,
    },
    Role.CLAIMING: {
        Input.WON: (Role.LEADING, (Effect.BEGIN_TERM,)),
        Input.BEATEN: _LOOK,
        # The reply may be lost, not the claim: the next survey reads who won.
        Input.FAILED: (Role.WAITING, (Effect.RETRY_SOON,)),
        Input.LOST: (Role.ENLISTING, (Effect.RETRY_SOON,)),
        Input.WITHDRAW: _RELEASE,
    },
    Role.LEADING: {
        **_OUSTED_BY,
        Input.SUSPENDED: (Role.SUSPECT, (Effect.PAUSE,)),
        Input.LATE: (Role.SUSPECT, (Effect.PAUSE,)),
        Input.TOLD: _TOLD,
        Input.WITHDRAW: _TOLD,
        Input.HANDED_OVER: _RELEASE,
    },
    Role.SUSPECT: {
        **_OUSTED_BY,
        Input.HEARD: (Role.LEADING, (Effect.RESUME,)),
        Input.TOLD: _TOLD,
        Input.WITHDRAW: _TOLD,
        Input.HANDED_OVER: _RELEASE,
    },
    Role.ENDING: {
        **_OUSTED_BY,
        Input.HANDED_OVER: _RELEASE,
    },
    Role.OUSTED: {
        Input.HANDED_OVER: _RELEASE,
    },
    Role.RELEASING: {
        Input.RELEASED: (Role.IDLE, (Effect.SETTLE,)),
        Input.FAILED: (Role.RELEASING, (Effect.RETRY_SOON,)),
        Input.RETRY: _RELEASE,
        Input.CONNECTED: _RELEASE,
        # Ephemeral znodes die with their session; nothing is left to release.
        Input.LOST: (Role.IDLE, (Effect.SETTLE,)),
        # Not to be waited for: enlisting sweeps what the release could not delete.
        Input.STAND: (Role.ENLISTING, (Effect.SETTLE, Effect.ENLIST)),
    },
}


def step(role: Role, signal: Input) -> Decision:
    """Return the role after ``signal``, and the effects to carry out, in order."""
    return _TABLE[role].get(signal, (role, ()))
