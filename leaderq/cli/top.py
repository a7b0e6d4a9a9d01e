"""``leaderq top``: careers and queues on one screen, refreshed; and what may be asked of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from leaderq import clock
from leaderq.cli.connecting import connected, known_careers, user_here
from leaderq.cli.options import CONNECTION, Given, number, verb
from leaderq.config import Section, Settings
from leaderq.errors import ConfigurationError, LeaderqError, MissingPiece, told
from leaderq.zookeeper.paths import validated_path

if TYPE_CHECKING:
    from leaderq.cli.top_rows import TopSnapshot
    from leaderq.cli.top_screen import AskedDeed
    from leaderq.zookeeper import Session

_TIMEOUT_S = 20.0


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
    try:
        from leaderq.cli.top_screen import TopApp
    except ImportError as error:
        raise MissingPiece("top needs textual; run: pip install 'leaderq[top]'") from error
    for path in given.queues:
        validated_path(path.removesuffix("/*") or "/")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError("top needs a terminal; leaderq status --json is for programs")
    with connected(given) as session:
        settings = given.settings
        reader = TopReader(session, settings, given.queues)
        app = TopApp(
            reader.read, lambda asked: carry_out(session, settings, asked), every_s=given.every
        )
        app.run()


class TopReader:
    """Reads snapshots, one after the other."""

    def __init__(self, session: Session, settings: Settings, queues: tuple[str, ...]) -> None:
        from leaderq.admin.queue_states import QueueStates

        self._session, self._settings = session, settings
        self._queues = QueueStates(session, queues)

    def read(self, before: TopSnapshot) -> TopSnapshot:
        """The next snapshot; one that could not be read says why, with what was known before."""
        from leaderq.admin.careers import career_states
        from leaderq.cli.top_rows import TopSnapshot

        session, settings = self._session, self._settings
        try:
            careers = career_states(session, settings.root, known_careers(session, settings))
            queues, _ = self._queues.read(())
        except LeaderqError as error:
            return replace(before, problem=told(error))
        return TopSnapshot(clock.now_ms(), tuple(careers), tuple(queues))


def carry_out(session: Session, settings: Settings, asked: AskedDeed) -> str:
    """Do what was confirmed; returns what happened.

    :raises LeaderqError: it was refused, or not done within 20 s; the text says what holds now.
    """
    from leaderq.cli.top_screen import Deed
    from leaderq.election import Operator

    by, why = user_here(), asked.why
    operator = Operator(session, asked.career, root=settings.root, by=by, why=why)
    if asked.deed is Deed.PAUSE:
        operator.pause()
        return f"{asked.career} is paused"
    if asked.deed is Deed.RESUME:
        operator.resume()
        return f"{asked.career} resumes"
    if asked.deed is Deed.STEP_DOWN:
        view = operator.step_down(timeout_s=_TIMEOUT_S)
    else:
        view = operator.transfer(asked.to, timeout_s=_TIMEOUT_S)
    return f"{view.leader} leads {view.career}, term {view.term}"
