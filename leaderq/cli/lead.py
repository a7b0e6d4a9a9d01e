"""``leaderq lead``: stand for election, and run a command while leading, under a guardian."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import click

from leaderq.cli.completion import ONE_CAREER
from leaderq.cli.connecting import named_career, zookeeper_security
from leaderq.cli.options import Given, Verb, takes_settings
from leaderq.cli.run import work
from leaderq.cli.signals import stop_early
from leaderq.config import Section, Settings
from leaderq.errors import ConfigurationError
from leaderq.observability.logging import configure

_SECTIONS = [each for each in Section if each not in (Section.KAFKA, Section.DRAIN)]
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


@click.command(
    cls=Verb,
    context_settings={"allow_interspersed_args": False},
    options_metavar="--career NAME [OPTIONS] --",
)
@click.argument(
    "command",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="COMMAND [ARGS]...",
)
@click.option(
    "--on-exit",
    type=click.Choice(["stop", "stand-again"]),
    default="stop",
    envvar="LEADERQ_ON_EXIT",
    show_envvar=True,
    show_default=True,
    help="when COMMAND ends by itself: end with its exit code, or stand for election again",
)
@takes_settings(*_SECTIONS, career=ONE_CAREER)
@click.pass_context
def lead(ctx: click.Context, given: Given, on_exit: str, command: tuple[str, ...]) -> int:
    """Stand for election as NAME, and run COMMAND, in any language, while this process leads.

    The first SIGTERM or SIGINT (Ctrl-C), a step-down or a transfer ends the term: COMMAND and all
    that it has started get SIGTERM, and SIGKILL when the hand-over budget is nearly over. After
    the end of a lost lease they have a sixth of the session time-out. They are dead before anybody
    else leads, also when this process is killed. After a lost or transferred term it stands again.
    Standard streams are COMMAND's; SIGUSR1 and SIGUSR2 are passed on to it. A pause has no effect.

    When COMMAND ends by itself, the term ends, and what it has left running is ended: a program
    must stay in the foreground. With --on-exit stop this process ends with its exit code. With
    stand-again it stands again after --cool-off-s; after each failure (not 0) later and later.

    \b
    COMMAND finds in its environment:
      LEADERQ_TERM_NUMBER         fencing token: store it with the data, refuse lower ones
      LEADERQ_TERM_ID             name of the term, unique for ever
      LEADERQ_TERM_CAREER, LEADERQ_TERM_CANDIDATE
      LEADERQ_TERM_UNCLEAN        1 if the term before ended without a hand-over, else 0
      LEADERQ_TERM_LEASE_S        how long a term goes on when ZooKeeper is silent
      LEADERQ_TERM_BUDGET_S       the hand-over budget
      LEADERQ_TERM_DEADLINE_FILE  a file with the end of the lease, on the clock of /proc/uptime;
                                  renewed all the time; if it is gone, the term is over

    Exit codes: with --on-exit stop, those of COMMAND: 128+n if signal n ended it, 126 if it cannot
    be executed, 127 if it was not found. Else 0 stopped as asked, 2 bad usage or configuration, 3
    ZooKeeper unreachable, 4 the hand-over took longer than its budget, 1 this process was killed,
    130 left at the second signal.

    \b
    Examples:
      leaderq lead --career report -- java -jar report.jar --daily
      leaderq lead --career poller --on-exit stand-again -- ./poll.sh
      leaderq lead --career web --zookeeper zk1:2181,zk2:2181 -- nginx -g 'daemon off;'
    """
    signal.signal(signal.SIGTERM, stop_early)
    settings = given.load().settings
    _check(settings)
    from leaderq.running.command import CommandCareer, OnExit, check_command
    from leaderq.running.guardian import GUARDIAN_FD, watch_over

    check_command(command[0])
    is_worker = GUARDIAN_FD in os.environ
    configure(settings.log_format, settings.log_level, settings.log_config if is_worker else None)
    if not is_worker:
        return watch_over(ctx.find_root().obj)
    from leaderq.running.guardian_link import GuardianLink

    link = GuardianLink.from_environment()
    assert link is not None  # just looked for
    link.use_servers(settings.zookeeper, zookeeper_security(settings))
    career = CommandCareer(command, OnExit(on_exit))
    for number in _PASSED_ON:
        signal.signal(number, lambda got, _frame: career.pass_on(got))
    return work([(settings, career)], link) or career.exit_code


def _check(settings: Settings) -> None:
    named_career(settings)
    if not settings.guardian:
        raise ConfigurationError(
            "leaderq lead needs its guardian, which ends the command when this process is killed;"
            " leave --guardian on"
        )
    if not Path("/proc/thread-self/children").exists():
        raise ConfigurationError(
            "leaderq lead needs Linux with /proc: elsewhere what a command has started is not found"
        )
