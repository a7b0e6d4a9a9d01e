"""Careers that run a command by the clock (``leaderq lead --cron``) or once for a key (``--once``);
and what makes a process leave when another one leads (``--if-busy leave``).

A tick is over when the command, and all that it has started, have ended. An exit code other than 0
is a failed tick, and the process goes on. If the term ends first, the tick was interrupted, and the
next leader runs it again, or not, as ``--on-crash`` says.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from leaderq.base import clock
from leaderq.election.layout import Layout, in_line
from leaderq.errors import CommandFailed
from leaderq.events import SessionChanged, Standing
from leaderq.running.command import VARIABLES, CommandCareer, OnExit
from leaderq.running.runner import Runner
from leaderq.schedules.career import ScheduledCareer
from leaderq.schedules.definition import schedule
from leaderq.schedules.once import begun, concluded, decode_runs, encode_runs
from leaderq.schedules.record import TickOutcome
from leaderq.schedules.stored import StoredRecord
from leaderq.schedules.tick import Tick
from leaderq.term import Term

log = logging.getLogger(__name__)

_INTERRUPTED = 143  # as after SIGTERM


def timed_command(command: Sequence[str], **times: Any) -> CommandCareer:
    """A career that runs ``command`` at the ticks of a schedule named ``command``; ``times`` are
    the arguments of :func:`leaderq.schedule`.
    """

    class TimedCommand(CommandCareer):
        """Runs its command by the clock."""

        execute = ScheduledCareer.execute

        @schedule(**times)
        def command(self, tick: Tick) -> None:
            """Run it, for one tick."""
            told = {
                "TICK_AT": tick.at.isoformat(),
                "TICK_MISSED": str(tick.missed),
                "TICK_ATTEMPT": str(tick.attempt),
            }
            ended = self.run(tick.term, _variables(told))
            if ended is None:
                raise CommandFailed(command[0], "was interrupted", _INTERRUPTED)
            self.end_left(tick.term)
            if ended.error is not None:
                raise ended.error

    return TimedCommand(command)


class OnceCommand(CommandCareer):
    """Runs ``command`` in a term. If it is recorded as done for ``key``, this process finishes
    instead.
    """

    def __init__(self, command: Sequence[str], key: str, on_exit: OnExit = OnExit.STOP) -> None:
        super().__init__(command, on_exit)
        self._key = key

    def execute(self, term: Term) -> None:
        """Run the command and record its end; if the record says that it is done, finish."""
        layout = Layout(self.settings.root, term.career)
        stored = StoredRecord(self.session, layout.once)
        runs = decode_runs(stored.read(term), path=layout.once)
        now, who = clock.now_ms(), term.candidate
        runs, run = begun(runs, self._key, now, term=term.number, candidate=who)
        if run.outcome is TickOutcome.DONE:
            log.info("done before career=%s key=%s by=%s", term.career, self._key, run.candidate)
            self._stands_again = False
            term.finish()
            return
        stored.store(term, encode_runs(runs))
        told = {"TICK_KEY": self._key, "TICK_ATTEMPT": str(run.attempt)}
        ended = self.run(term, _variables(told))
        if ended is None:
            return
        error = None if ended.error is None else str(ended.error)
        stored.store(term, encode_runs(concluded(runs, self._key, clock.now_ms(), error)))
        self.conclude(term, ended)


def leave_if_busy(runner: Runner) -> None:
    """Stop ``runner`` as soon as another candidate is in front of it in the line."""
    session, layout = runner._session, Layout(runner.settings.root, runner.career_name)
    node: list[str] = []

    def listed(reply: Any) -> None:
        line = in_line(reply.result()) if reply.exception() is None else []  # when connected again
        if node and node[0] in line[1:]:
            log.info("another leads, or is about to, so it leaves career=%s", runner.career_name)
            runner.stop()

    def look(event: Standing | SessionChanged) -> None:
        if isinstance(event, Standing):
            node[:] = [event.node]
        session.children_async(layout.candidates).add_done_callback(listed)

    runner.events.subscribe(Standing, look)
    runner.events.subscribe(SessionChanged, look)


def _variables(values: Mapping[str, str]) -> dict[str, str]:
    return {VARIABLES + name: value for name, value in values.items()}
