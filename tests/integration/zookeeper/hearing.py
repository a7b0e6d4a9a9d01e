"""What a listener of a session heard, told apart from what the server's threads happened to do
first.
"""

from __future__ import annotations

from leaderq.zookeeper import SessionState

RESUMED = [SessionState.SUSPENDED, SessionState.CONNECTED]


def without_resumptions(heard: list[SessionState]) -> list[SessionState]:
    """What was heard, less connections at the beginning that broke and were resumed.

    Whoever ends a session of another takes its connection away first. If the server is slow, the
    owner resumes the session before it is ended, and hears of that; so does the one whose server
    was silent for too long.
    """
    while heard[:2] == RESUMED:
        heard = heard[2:]
    return heard
