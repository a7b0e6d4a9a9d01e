"""``leaderq run`` and ``leaderq lead``: stand for election, under a guardian, with a user's career
or to run a command.

The parent process becomes the guardian, and runs the same command again as the worker. The worker
finds the link to its guardian in its environment, checks everything and does the work. The guardian
never imports the user's module, so what the module takes at import (a port, memory, a lock) is free
for the worker.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from leaderq.base.arguments import require, wanted
from leaderq.base.exits import ExitCode
from leaderq.career import Career, ILeaderCareer, career_name, kebab_case
from leaderq.cli.career_loading import find_career, make_career
from leaderq.cli.connecting import ONE_CAREER, named_career, open_session, zookeeper_security
from leaderq.cli.options import Given, number, switch, verb
from leaderq.cli.signals import stop_early
from leaderq.config import (
    DEFAULT,
    TABLE,
    Section,
    Settings,
    current_folder,
    new_candidate_id,
)
from leaderq.errors import CareerFailed, ConfigurationError, LeaderqError
from leaderq.observability.logging import configure, log_failure
from leaderq.threads.service import Service

if TYPE_CHECKING:
    from leaderq.observability.http import HttpEndpoint
    from leaderq.running import Runner
    from leaderq.running.command import CommandCareer
    from leaderq.running.guardian_link import GuardianLink


log = logging.getLogger(__name__)
Careers = Sequence[tuple[Settings, ILeaderCareer]]
Wanted = tuple["str | None", str]  # the name, if it is not to be that of the class; and the class
_NAMED = 10
_OWN_ID = new_candidate_id()  # one for all careers of the process
_OF_THE_PROCESS = (Section.CONNECTION, Section.ZOOKEEPER_SECURITY, Section.PROCESS)


@verb(
    click.Argument(["targets"], metavar="MODULE:CLASS...", nargs=-1),
    switch(
        "--all",
        "all_careers",
        help="run every career of the configuration file: [careers.NAME] with its class",
    ),
    *Section,
)
def run(given: Given) -> int:
    """Stand for election with the career MODULE:CLASS, and lead when elected, until told to stop.

    Several careers share this process and its session. Each has its own candidate and failures; if
    one ends, the others go on. But a hand-over that takes too long, or a unit of work that outlives
    its lease, ends the process and all careers in it. With several careers, processes that a career
    starts in a term may outlive the term.

    The module is also looked for in the current directory. The first SIGTERM or SIGINT (Ctrl-C)
    winds the work up and hands over; the second one leaves at once.

    Exit codes: 0 stopped as asked, 1 the career failed, 2 bad usage or configuration, 3 ZooKeeper
    or Kafka unreachable, 4 the hand-over, or stopping after it, took longer than its
    budget, 130 left at the second signal.

    \b
    Examples:
      leaderq run billing:AdBilling
      leaderq run billing:AdBilling --id a --zookeeper zk1:2181,zk2:2181 --kafka kafka1:9092
      leaderq run billing:AdBilling caching:Refresh --http 8080
      leaderq run --all
    """
    signal.signal(signal.SIGTERM, stop_early)
    from leaderq.running.guardian import GUARDIAN_FD, watch_over  # not needed for --help

    context = click.get_current_context()
    if given.all_careers == bool(given.targets):
        raise click.UsageError(
            "name careers as MODULE:CLASS, or give --all for those of the configuration file",
            context,
        )
    wanted = _of_file(given) if given.all_careers else [(None, target) for target in given.targets]
    if GUARDIAN_FD not in os.environ and _wants_guardian(given, *wanted[0]):
        return watch_over(context.find_root().obj)
    from leaderq.running.guardian_link import GuardianLink

    link = GuardianLink.from_environment()
    classes = _all_checked(given, wanted)
    settings = classes[0][1]
    _collect_seldom(settings.gc_threshold)
    configure(settings.log_format, settings.log_level, settings.log_config)
    if link is not None:
        link.use_servers(settings.zookeeper, zookeeper_security(settings))
    return _work(_made(classes), link)


_TIMES = (
    click.Option(
        ["--cron"],
        metavar="EXPRESSION",
        help="run COMMAND at these times, and stay: minute, hour, day of month, month, day of week",
    ),
    click.Option(["--tz"], metavar="ZONE", default="UTC", help="the time zone of --cron"),
    click.Option(
        ["--catch-up"],
        type=click.Choice(["last", "all", "none"]),
        default="last",
        show_default=True,
        help="which of the ticks of --cron that nobody could run in time are run later",
    ),
    click.Option(
        ["--on-crash"],
        type=click.Choice(["again", "skip"]),
        default="again",
        show_default=True,
        help="what the next leader does with a tick of --cron that was interrupted",
    ),
    click.Option(
        ["--once"],
        metavar="KEY",
        help="run COMMAND once for KEY, over all hosts: leave if it has been done",
    ),
    click.Option(
        ["--if-busy"],
        type=click.Choice(["wait", "leave"]),
        default="wait",
        show_default=True,
        help="when another process leads, or is about to: wait for the turn, or leave with code 0",
    ),
)


@verb(
    click.Argument(
        ["command"], nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND [ARGS]..."
    ),
    click.Option(
        ["--on-exit"],
        type=click.Choice(["stop", "stand-again"]),
        default="stop",
        envvar="LEADERQ_ON_EXIT",
        show_envvar=True,
        show_default=True,
        help="when COMMAND ends by itself, without --cron: end with its exit code, or stand again",
    ),
    *_TIMES,
    ONE_CAREER,
    *(each for each in Section if each not in (Section.KAFKA, Section.DRAIN)),
    context_settings={"allow_interspersed_args": False},
    options_metavar="--career NAME [OPTIONS] --",
)
def lead(given: Given) -> int:
    """Stand for election as NAME, and run COMMAND, in any language, while this process leads.

    The first SIGTERM or SIGINT (Ctrl-C), a step-down or a transfer ends the term. COMMAND and
    everything it has started get SIGTERM; they get SIGKILL when the hand-over budget is nearly over
    or, if the lease was lost, a twelfth of the session time-out after its end. They are dead before
    anybody else leads, even if this process is killed. After a term that was lost or transferred,
    this process stands again. COMMAND has the standard streams; SIGUSR1 and SIGUSR2 are passed on
    to it. leaderq pause has no effect.

    When COMMAND ends by itself, the term ends, and so do all processes that COMMAND has left
    behind: a program must stay in the foreground. With --on-exit stop, this process then ends with
    the exit code of COMMAND. With stand-again, it stands again after --cool-off-s; the pause grows
    with each failure in a row (an exit code other than 0).

    If leaderq lead is started on several hosts, COMMAND runs on one host after the other, once on
    each. To replace cron, give --cron: COMMAND runs at each tick, on the host that leads then, and
    later leaders know which ticks are done (leaderq schedule ls). If cron starts leaderq lead on
    every host, give --once KEY, such as the day: COMMAND is run once for that key, over all hosts
    (400 keys are kept).

    \b
    COMMAND finds in its environment:
      LEADERQ_TERM_NUMBER         fencing token: store it with the data, refuse lower ones
      LEADERQ_TERM_ID             name of the term, unique for ever
      LEADERQ_TERM_CAREER, LEADERQ_TERM_CANDIDATE
      LEADERQ_TERM_UNCLEAN        1 if the term before ended without a hand-over, else 0
      LEADERQ_TERM_LEASE_S        how long a term lasts when ZooKeeper is silent
      LEADERQ_TERM_BUDGET_S       the hand-over budget
      LEADERQ_TERM_DEADLINE_FILE  a file with the end of the lease, in seconds on CLOCK_BOOTTIME;
                                  renewed all the time; if it is gone, the term is over; leaderq
                                  deadline reads it
      LEADERQ_TERM_TICK_AT        with --cron: the time the tick stands for, however late it runs
      LEADERQ_TERM_TICK_MISSED, LEADERQ_TERM_TICK_ATTEMPT
      LEADERQ_TERM_TICK_KEY       with --once: the key

    Exit codes: with --on-exit stop, those of COMMAND: 128+n if signal n ended it, 126 if it cannot
    be executed, 127 if it was not found. Else 0 stopped as asked, 2 bad usage or configuration, 3
    ZooKeeper unreachable, 4 the hand-over took longer than its budget, 1 this process was killed,
    130 left at the second signal.

    \b
    Examples:
      leaderq lead --career report -- java -jar report.jar --daily
      leaderq lead --career nightly --cron "0 2 * * *" --tz Europe/Berlin -- ./nightly.sh
      leaderq lead --career nightly --once "$(date +%F)" -- ./nightly.sh
      leaderq lead --career poller --on-exit stand-again -- ./poll.sh
      leaderq lead --career web --zookeeper zk1:2181,zk2:2181 -- nginx -g 'daemon off;'
    """
    signal.signal(signal.SIGTERM, stop_early)
    settings = given.settings
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
    from leaderq.running.command import check_command
    from leaderq.running.guardian import GUARDIAN_FD, watch_over

    check_command(given.command[0])
    _commanded(given)  # refused here, before there is a worker
    is_worker = GUARDIAN_FD in os.environ
    configure(settings.log_format, settings.log_level, settings.log_config if is_worker else None)
    if not is_worker:
        return watch_over(click.get_current_context().find_root().obj)
    from leaderq.running.guardian_link import GuardianLink

    link = GuardianLink.from_environment()
    assert link is not None  # just looked for
    link.use_servers(settings.zookeeper, zookeeper_security(settings))
    career = _commanded(given)
    for passed_on in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(passed_on, lambda got, _frame: career.pass_on(got))
    leaves = given.if_busy == "leave"
    return _work([(settings, career)], link, leaves=leaves) or career.exit_code


@verb(
    number(
        "--least",
        "fail also if fewer seconds than this are left",
        least=0.0,
        default=0.0,
        metavar="SECONDS",
    )
)
def deadline(given: Given) -> ExitCode:
    """Write how many seconds of the lease are left; for a command that leaderq lead has started.

    Use this as the last check before an effect that cannot be fenced. If it fails, the term is over
    or about to end, and the effect must not happen. The lease is renewed all the time, so the
    number grows again.

    Exit codes: 0 the term is on, 1 it is over or too little is left, 2 not within leaderq lead.

    \b
    Example:
      leaderq deadline --least 2 && mail -s report boss@example.com < report.txt
    """
    from leaderq.running.command import VARIABLES, DeadlineFile

    if (path := os.environ.get(VARIABLES + "DEADLINE_FILE")) is None:
        what = f"{VARIABLES}DEADLINE_FILE is not set"
        raise ConfigurationError(f"{what}; it is in a command that leaderq lead has started")
    left_s = DeadlineFile.left_s(path)
    click.echo(f"{max(0.0, left_s):.3f}")
    return ExitCode.OK if left_s > 0 and left_s >= given.least else ExitCode.FAILED


def _commanded(given: Given) -> CommandCareer:
    """The career that runs the command, as the options say."""
    from leaderq.running.command import CommandCareer, OnExit
    from leaderq.running.timed_command import OnceCommand, timed_command

    if given.cron is not None and given.once is not None:
        raise ConfigurationError("--cron and --once exclude each other; give one of them")
    useless = (
        dict.fromkeys(("tz", "catch_up", "on_crash"), "without")
        if given.cron is None
        else {"on_exit": "with"}
    )
    source = click.get_current_context().get_parameter_source
    require(
        *(
            f"--{name.replace('_', '-')} means nothing {how} --cron; leave it out"
            for name, how in useless.items()
            if source(name) is ParameterSource.COMMANDLINE
        )
    )
    if given.cron is not None:
        times = {"tz": given.tz, "catch_up": given.catch_up, "on_crash": given.on_crash}
        return timed_command(given.command, cron=given.cron, **times)
    if given.once is not None:
        require(wanted("--once", given.once, bool(given.once.strip()), "a key, such as the day"))
        return OnceCommand(given.command, given.once, OnExit(given.on_exit))
    return CommandCareer(given.command, OnExit(given.on_exit))


def _of_file(given: Given) -> list[Wanted]:
    found = given.load()
    if not found.careers:
        what = f"{found.file} has no careers" if found.file else "there is no leaderq.toml here"
        raise ConfigurationError(
            f'{what}; write [careers.NAME] with class = "MODULE:CLASS" for each'
        )
    wanted: list[Wanted] = [(name, target) for name, target in found.careers.items() if target]
    if nameless := [name for name, target in found.careers.items() if not target]:
        remedy = 'write class = "MODULE:CLASS" there, or name the careers to run instead of --all'
        raise ConfigurationError(
            *(f"[careers.{name}] of {found.file} has no class; {remedy}" for name in nameless)
        )
    if found.settings.career is not None:
        remedy = "leave it out: with --all each career has the name of its table"
        raise ConfigurationError(
            f"career is {found.settings.career!r} (from {found.source('career')}); {remedy}"
        )
    return wanted


def _wants_guardian(given: Given, name: str | None, target: str) -> bool:
    """Return whether this process should be a guardian, and set up its log. If settings are bad,
    return ``False``: the worker reports them.
    """
    class_name = target.rpartition(".")[2].rpartition(":")[2]
    try:
        settings = given.load(career=name or kebab_case(class_name)).settings
    except ConfigurationError:
        return False
    configure(settings.log_format, settings.log_level)
    return settings.guardian


class _Problems(list[str]):
    """The problems of several steps, collected one by one."""

    cause: ConfigurationError | None = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        try:
            yield
        except ConfigurationError as error:
            self += error.problems
            self.cause = error

    def tell(self) -> None:
        if self:
            raise ConfigurationError(*self) from self.cause


def _all_checked(
    given: Given, wanted: Sequence[Wanted]
) -> list[tuple[str, Settings, type[ILeaderCareer]]]:
    """Return target, settings and class of each career in ``wanted``; raise one error with the
    problems of all.
    """
    problems, found = _Problems(), []
    for name, target in wanted:
        with problems.noted():
            found.append((target, *_checked(given, name, target)))
    problems.tell()
    _check_together([settings for _, settings, _ in found])
    return found


def _checked(given: Given, name: str | None, target: str) -> tuple[Settings, type[ILeaderCareer]]:
    """Return settings and class of a career; raise one error with the problems of both."""
    problems, career = _Problems(), None
    with problems.noted():
        career = find_career(target, current_folder())
    with problems.noted():
        found = given.load(career=name or (career_name(career) if career else None))
    problems.tell()
    assert career is not None
    is_own = found.source("id") == DEFAULT
    return replace(found.settings, id=_OWN_ID) if is_own else found.settings, career


def _check_together(settings: Sequence[Settings]) -> None:
    """Raise an error if careers with these settings cannot share a process."""
    problems = []
    names = [each.career for each in settings]
    for name in sorted({str(one) for one in names if names.count(one) > 1}):
        remedy = "leave --career out, and give each class a name of its own"
        problems.append(f"several of these careers stand as {name!r}; {remedy}")
    for row in (row for row in TABLE if row.section in _OF_THE_PROCESS):
        if len({str(getattr(each, row.name)) for each in settings}) > 1:
            remedy = "set it at the top of the file, not in a career's table"
            problems.append(f"{row.name} differs between careers that share a process; {remedy}")
    require(*problems)


def _made(classes: Iterable[tuple[str, Settings, type[ILeaderCareer]]]) -> Careers:
    """Return an instance of each class; raise one error with all that is wrong in what they
    declare.
    """
    problems, made = _Problems(), []
    for target, settings, kind in classes:
        with problems.noted():
            made.append((settings, career := make_career(kind, target)))
            if isinstance(career, Career):
                career._take(settings)
                career._check_declared(settings)
    problems.tell()
    return made


def _collect_seldom(threshold: int) -> None:
    """Let Python's garbage collector run only after ``threshold`` new objects, if it runs sooner
    now.

    Batches of records are thousands of objects that live for milliseconds and hold no cycle. With
    the usual threshold of 700, a drain spends up to half of its time looking at them in vain. A
    library must leave that to the program; here, leaderq is the program.
    """
    young, *others = gc.get_threshold()
    if 0 < young < threshold:
        gc.set_threshold(threshold, *others)


def _work(careers: Careers, link: GuardianLink | None, *, leaves: bool = False) -> int:
    """Stand for election with each career, in this process; return the exit code."""
    settings = careers[0][0]
    if settings.http is None:
        return _stand(careers, link, None, leaves)
    from leaderq.observability.http import HttpEndpoint  # costs nothing when it is off

    with HttpEndpoint(settings.http) as endpoint:
        return _stand(careers, link, endpoint, leaves)


def _stand(
    careers: Careers, link: GuardianLink | None, endpoint: HttpEndpoint | None, leaves: bool
) -> int:
    from leaderq.running import Runner
    from leaderq.running.descendants import end_started, watch_orphans
    from leaderq.running.runner import handling

    if link is not None:
        watch_orphans(link.pid)
    session = open_session(careers[0][0])
    try:
        runners = [
            Runner(career, session, settings=settings, guardian=link, leave=_leave)
            for settings, career in careers
        ]
        if endpoint is not None:
            _answer(endpoint, runners)
        if leaves:
            from leaderq.running.timed_command import leave_if_busy

            leave_if_busy(runners[0])
        with handling(*runners):
            try:
                return runners[0].run() if len(runners) == 1 else _run_together(runners)
            finally:
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)  # it is leaving as fast as it can
    except CareerFailed as error:
        if len(careers) == 1:
            log_failure(error)
        raise
    finally:
        end_started(within_s=1.0)
        if session.close() and link is not None:
            link.forget_session()
        budget_s = careers[0][0].handover_budget_s
        Service("leaderq-leaving", partial(_leave_in, budget_s)).start()


def _run_together(runners: Sequence[Runner]) -> int:
    """Run all runners until they have ended; then raise the first failure."""
    from leaderq.running.runner import supervise

    failures: list[LeaderqError] = []
    for ended in supervise(runners):
        if (error := ended.failure) is None:
            continue
        failures.append(error)
        if isinstance(error, CareerFailed):
            log_failure(error)
        else:
            log.error("career ended career=%s error=%s", ended.career_name, error)
    if failures:
        raise failures[0]
    return ExitCode.OK


def _answer(endpoint: HttpEndpoint, runners: Sequence[Runner]) -> None:
    from leaderq.observability.health import Health
    from leaderq.observability.http import health_routes
    from leaderq.observability.metrics import Metrics

    careers = [Health(runner.events, runner.look) for runner in runners]
    endpoint.start({**health_routes(*careers), "/metrics": Metrics(*careers).route()})


def _leave_in(budget_s: float, waiting: Service) -> None:
    """End the process after ``budget_s`` seconds. It would have ended by then if Python did not
    wait for threads of the user's, such as those of a pool.
    """
    waiting.pause(budget_s)
    names = [one.name for one in threading.enumerate() if not one.name.startswith("leaderq-leav")]
    log.error(
        "threads hold this process up, it leaves budget_s=%g threads=%s",
        *(budget_s, ", ".join(names[:_NAMED])),
    )
    _leave(ExitCode.HANDOVER_MISSED)


def _leave(code: int) -> None:
    """End the process and all processes it has started: its code was told to stop, and did not."""
    if code == ExitCode.FORCED and sys.stderr is not None and sys.stderr.isatty():
        # Past the log: this is a signal handler, and the interrupted code may hold its lock.
        os.write(sys.stderr.fileno(), b"leaderq: left at the second signal, without a hand-over\n")
    from leaderq.running.descendants import end_started

    end_started(within_s=0.2)
    logging.shutdown()  # bounded: see BackgroundHandler
    os._exit(code)
