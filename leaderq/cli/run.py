"""``leaderq run``: stand for election with a user's career, under a guardian.

The parent becomes the guardian and runs the same command again as the worker, which finds the link
to its guardian in its environment, checks everything and does the work. The guardian never imports
the user's module: what that takes at import (a port, memory, a lock) is free for the worker.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leaderq.career import ILeaderCareer, career_name, kebab_case
from leaderq.cli.career_loading import find_career, make_career
from leaderq.cli.connecting import open_session, zookeeper_security
from leaderq.cli.options import EVERYTHING, Given, Verb, switch, takes_settings
from leaderq.cli.signals import stop_early
from leaderq.config import DEFAULT, TABLE, Section, Settings, new_candidate_id
from leaderq.errors import CareerFailed, ConfigurationError
from leaderq.exits import ExitCode
from leaderq.observability.logging import configure, log_failure

if TYPE_CHECKING:
    from leaderq.observability.http import HttpEndpoint
    from leaderq.running import Runner
    from leaderq.running.guardian_link import GuardianLink


log = logging.getLogger(__name__)
Careers = Sequence[tuple[Settings, ILeaderCareer]]
Wanted = tuple["str | None", str]  # the name, if it is not to be that of the class; and the class
_OF_THE_PROCESS = (Section.CONNECTION, Section.ZOOKEEPER_SECURITY, Section.PROCESS)


@click.command(cls=Verb)
@click.argument("targets", metavar="MODULE:CLASS...", nargs=-1)
@switch(
    "--all",
    "all_careers",
    help="run every career of the configuration file: [careers.NAME] with its class",
)
@takes_settings(*EVERYTHING)
@click.pass_context
def run(ctx: click.Context, given: Given, targets: tuple[str, ...], all_careers: bool) -> int:
    """Stand for election with the career MODULE:CLASS, and lead when elected, until told to stop.

    Several careers share this process and its session. Each has a candidate and failures of its
    own, and one that cannot go on does not end the others; but what ends the process (an overrun
    hand-over, a unit that outlives its lease) ends all, and what they start in a term may outlive
    it. --all runs those of the configuration file: each [careers.NAME] in it has class =
    "MODULE:CLASS".

    The module is looked for in the current directory too. The first SIGTERM or SIGINT (Ctrl-C)
    winds the work up and hands over; the second one leaves at once.

    Exit codes: 0 stopped as asked, 1 the career failed, 2 bad usage or configuration, 3 ZooKeeper
    or Kafka unreachable, 4 the hand-over took longer than its budget, 130 left at the second
    signal.

    \b
    Examples:
      leaderq run billing:AdBilling
      leaderq run billing:AdBilling --id a --zookeeper zk1:2181,zk2:2181 --kafka kafka1:9092
      leaderq run billing:AdBilling --http 8080
      leaderq run billing:AdBilling caching:Refresh
      leaderq run --all
      LEADERQ_LOG_FORMAT=json leaderq run billing:AdBilling --no-guardian
    """
    signal.signal(signal.SIGTERM, stop_early)
    from leaderq.running.guardian import GUARDIAN_FD, watch_over  # not needed for --help

    if all_careers == bool(targets):
        raise click.UsageError(
            "name careers as MODULE:CLASS, or give --all for those of the configuration file", ctx
        )
    wanted = _of_file(given) if all_careers else [(None, target) for target in targets]
    if GUARDIAN_FD not in os.environ and _wants_guardian(given, *wanted[0]):
        return watch_over(ctx.find_root().obj)
    from leaderq.running.guardian_link import GuardianLink

    link = GuardianLink.from_environment()
    classes = _all_checked(given, wanted)
    settings = classes[0][1]
    _collect_seldom(settings.gc_threshold)
    configure(settings.log_format, settings.log_level, settings.log_config)
    if link is not None:
        link.use_servers(settings.zookeeper, zookeeper_security(settings))
    return work([(each, make_career(career, target)) for target, each, career in classes], link)


def _collect_seldom(threshold: int) -> None:
    """Let Python's garbage collector look after so many objects made, if it looks sooner.

    Batches of records are thousands of objects that live for milliseconds and hold no cycle: with
    the usual threshold of 700 a drain spends up to half of its time on looking at them in vain. A
    library must leave that to the program; here, the process is leaderq's.
    """
    young, *others = gc.get_threshold()
    if 0 < young < threshold:
        gc.set_threshold(threshold, *others)


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
    """Whether this process is to be a guardian; sets its log up. Wrong settings: the worker says
    so.
    """
    class_name = target.rpartition(".")[2].rpartition(":")[2]
    try:
        settings = given.load(career=name or kebab_case(class_name)).settings
    except ConfigurationError:
        return False
    configure(settings.log_format, settings.log_level)
    return settings.guardian


def work(careers: Careers, link: GuardianLink | None) -> int:
    """Stand with each career, with its settings, in this process; returns the exit code."""
    settings = careers[0][0]
    if settings.http is None:
        return _stand(careers, link, None)
    from leaderq.observability.http import HttpEndpoint  # costs nothing when it is off

    with HttpEndpoint(settings.http) as endpoint:
        return _stand(careers, link, endpoint)


def _stand(careers: Careers, link: GuardianLink | None, endpoint: HttpEndpoint | None) -> int:
    from leaderq.running import Runner
    from leaderq.running.descendants import end_all
    from leaderq.running.runner import handling

    session = open_session(careers[0][0])
    try:
        runners = [
            Runner(career, session, settings=settings, guardian=link, leave=_leave)
            for settings, career in careers
        ]
        if endpoint is not None:
            _answer(endpoint, runners)
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
        end_all(os.getpid(), within_s=1.0)
        if session.close() and link is not None:
            link.forget_session()


def _run_together(runners: Sequence[Runner]) -> int:
    """Run each on a thread of its own until all have ended; then raise the first failure."""
    failures: list[Exception] = []

    def run(runner: Runner) -> None:
        try:
            runner.run()
        except Exception as error:  # noqa: BLE001  (raised below; the others go on)
            failures.append(error)
            if isinstance(error, CareerFailed):
                log_failure(error)
            else:
                log.error("career ended career=%s error=%s", runner.career_name, error)  # noqa: TRY400

    threads = [
        threading.Thread(target=run, args=(each,), name=f"leaderq-runner-{each.career_name}")
        for each in runners
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return ExitCode.OK


def _all_checked(
    given: Given, wanted: Sequence[Wanted]
) -> list[tuple[str, Settings, type[ILeaderCareer]]]:
    """Settings and class of each that is wanted; raises with the problems of all."""
    problems: list[str] = []
    found = []
    for name, target in wanted:
        try:
            found.append((target, *_checked(given, name, target)))
        except ConfigurationError as error:
            problems += error.problems
            cause = error
    if problems:
        raise ConfigurationError(*problems) from cause
    _check_together([settings for _, settings, _ in found])
    return found


def _check_together(settings: Sequence[Settings]) -> None:
    """Whether careers with these settings can share a process."""
    problems = []
    names = [each.career for each in settings]
    for name in sorted({str(one) for one in names if names.count(one) > 1}):
        remedy = "leave --career out, and give each class a name of its own"
        problems.append(f"several of these careers stand as {name!r}; {remedy}")
    for row in TABLE if len(settings) > 1 else ():
        differs = any(
            getattr(each, row.name) != getattr(settings[0], row.name) for each in settings
        )
        if row.section in _OF_THE_PROCESS and differs:
            remedy = "set it at the top of the file, not in a career's table"
            problems.append(f"{row.name} differs between careers that share a process; {remedy}")
    if problems:
        raise ConfigurationError(*problems)


def _answer(endpoint: HttpEndpoint, runners: Sequence[Runner]) -> None:
    from leaderq.observability.health import Health
    from leaderq.observability.http import health_routes
    from leaderq.observability.metrics import Metrics

    careers = [Health(runner.events, runner.look) for runner in runners]
    endpoint.start({**health_routes(*careers), "/metrics": Metrics(*careers).route()})


def _leave(code: int) -> None:
    """End the process and what it has started: what still runs was told to stop, and did not."""
    if code == ExitCode.FORCED and sys.stderr is not None and sys.stderr.isatty():
        # Past the log: this is a signal handler, and what it has interrupted may hold its lock.
        os.write(sys.stderr.fileno(), b"leaderq: left at the second signal, without a hand-over\n")
    from leaderq.running.descendants import end_all

    end_all(os.getpid(), within_s=0.2)
    logging.shutdown()  # bounded: see BackgroundHandler
    os._exit(code)


def _checked(given: Given, name: str | None, target: str) -> tuple[Settings, type[ILeaderCareer]]:
    """Settings and class, or the problems of both at once."""
    problems: list[str] = []
    career = configuration = None
    try:
        career = find_career(target, Path.cwd())
    except ConfigurationError as error:
        problems += error.problems
        cause = error
    try:
        configuration = given.load(career=name or (career_name(career) if career else None))
    except ConfigurationError as error:
        problems += error.problems
        cause = error
    if career is None or configuration is None:
        raise ConfigurationError(*problems) from cause
    settings = configuration.settings
    return (
        settings if configuration.source("id") != DEFAULT else replace(settings, id=_own_id())
    ), career


@functools.cache
def _own_id() -> str:
    return new_candidate_id()  # one for all careers of the process
