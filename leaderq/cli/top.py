"""``leaderq top``: careers and queues on one screen, refreshed; and what may be asked of them."""

from __future__ import annotations

import sys

import click

from leaderq import clock
from leaderq.cli.connecting import SOME_CAREER, connected, user_here
from leaderq.cli.options import CONNECTION, Given, number, verb
from leaderq.config import Section
from leaderq.errors import ConfigurationError, LeaderqError, MissingPiece, told
from leaderq.zookeeper.paths import validated_path


@verb(
    click.Option(
        ["--queue", "queues"],
        multiple=True,
        metavar="PATH",
        default=("/*",),
        show_default=True,
        help="a queue to show, or PATH/*: those directly below PATH that leaderq has used",
    ),
    number("--every", "SECONDS between two readings", least=0.5, most=60.0, default=2.0),
    SOME_CAREER,
    Section.CAREER,
    *CONNECTION,
)
def top(given: Given) -> None:
    """Watch careers, those in trouble first, queues, and what happened last; pause and resume
    careers, and change who leads, after a question. The history keeps who asked, and why.

    Keys: arrows and Enter (one career in full), / (filter: part of a name, a pattern such as
    team-*, or a state such as held up), s (sort), p (pause), r (resume), d (step down), t
    (transfer), Escape, q. Needs the extra leaderq[top]. NO_COLOR=1 turns colours off.

    The number of requests to ZooKeeper does not depend on what queues hold.

    \b
    Examples:
      leaderq top
      leaderq top --career 'team-*' --queue '/queues/*' --zookeeper zk1:2181
    """
    from leaderq.dashboard.actions import Action, carry_out
    from leaderq.dashboard.refresher import reading
    from leaderq.dashboard.snapshot import PageSnapshot, after_failure

    try:
        from leaderq.cli.top_screen import TopApp
    except ImportError as error:
        raise MissingPiece("top needs textual; run: pip install 'leaderq[top]'") from error
    for path in given.queues:
        validated_path(path.removesuffix("/*") or "/")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError("top needs a terminal; leaderq status --json is for programs")
    with connected(given) as session:
        root = given.settings.root
        read = reading(session, root, given.queues)

        def read_or_say_why(before: PageSnapshot) -> PageSnapshot:
            try:
                return read(before, frozenset())
            except LeaderqError as error:
                return after_failure(before, told(error), clock.now_ms())

        def act(action: Action, why: str) -> str:
            return carry_out(session, root, action, user_here(), why)

        wanted = given.settings.career or ""
        TopApp(read_or_say_why, act, wanted=wanted, every_s=given.every).run()
