"""``leaderq top``: shows careers and queues on one screen, reads them again and again, and asks for
changes.
"""

from __future__ import annotations

import sys
from functools import partial

from leaderq.cli.connecting import SHOWN_QUEUES, SOME_CAREER, connected, user_here
from leaderq.cli.options import CONNECTION, Given, number, verb
from leaderq.config import Section
from leaderq.errors import ConfigurationError, MissingPiece


@verb(
    SHOWN_QUEUES,
    number("--every", "SECONDS between two readings", least=0.5, most=60.0, default=2.0),
    SOME_CAREER,
    Section.CAREER,
    *CONNECTION,
)
def top(given: Given) -> None:
    """Watch careers (those in trouble first), queues, and the last events. You can also pause and
    resume careers, and change who leads; each time, top asks first. The history keeps who asked,
    and why.

    Keys: arrows and Enter (one career in full), / (filter: part of a name, a pattern such as
    team-*, or a condition such as held up), s (sort), p (pause), r (resume), d (step down), t
    (transfer), Escape, q. Needs the extra leaderq[top]. NO_COLOR=1 turns colours off.

    The number of requests to ZooKeeper does not depend on what queues hold.

    \b
    Examples:
      leaderq top
      leaderq top --career 'team-*' --queue /queues/ --zookeeper zk1:2181
    """
    from leaderq.admin.actions import Action, carry_out
    from leaderq.admin.snapshot import read_again, reading

    try:
        from leaderq.cli.top_screen import TopApp
    except ImportError as error:
        raise MissingPiece("top needs textual; run: pip install 'leaderq[top]'") from error
    # a standard input that is closed is None
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError("top needs a terminal; leaderq status --json is for programs")
    with connected(given) as session:
        root = given.settings.root
        read = reading(session, root, given.queues)

        def act(action: Action, why: str) -> str:
            return carry_out(session, root, action, user_here(), why)

        wanted = given.settings.career or ""
        TopApp(partial(read_again, read), act, wanted=wanted, every_s=given.every).run()
