"""``leaderq run``: stand for election with a user's career, under a guardian.

The parent becomes the guardian and runs the same command again as the worker, which finds the link
to its guardian in its environment, checks everything and does the work. The guardian never imports
the user's module: what that takes at import (a port, memory, a lock) is free for the worker.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leaderq.career import ILeaderCareer, career_name, kebab_case
from leaderq.cli.career_loading import find_career, make_career
from leaderq.cli.connecting import open_session, zookeeper_security
from leaderq.cli.options import EVERYTHING, Given, Verb, takes_settings
from leaderq.cli.signals import stop_early
from leaderq.config import Settings
from leaderq.errors import CareerFailed, ConfigurationError
from leaderq.events import EventBus
from leaderq.exits import ExitCode
from leaderq.observability.logging import configure, log_failure

if TYPE_CHECKING:
    from leaderq.observability.http import HttpEndpoint
    from leaderq.running import Runner
    from leaderq.running.guardian_link import GuardianLink


@click.command(cls=Verb)
@click.argument("target", metavar="MODULE:CLASS")
@takes_settings(*EVERYTHING)
@click.pass_context
def run(ctx: click.Context, given: Given, target: str) -> int:
    """Stand for election with the career MODULE:CLASS, and lead when elected, until told to stop.

    The module is looked for in the current directory too. The first SIGTERM or SIGINT (Ctrl-C) winds the work up and hands
    over; the second one leaves at once.

    Exit codes: 0 stopped as asked, 1 the career failed, 2 bad usage or configuration, 3 ZooKeeper or Kafka unreachable,
    4 the hand-over took longer than its budget, 130 left at the second signal.

    \b
    Examples:
      leaderq run billing:AdBilling
      leaderq run billing:AdBilling --id a --zookeeper zk1:2181,zk2:2181,zk3:2181 --kafka kafka1:9092
      leaderq run billing:AdBilling --http 8080
      LEADERQ_LOG_FORMAT=json leaderq run billing:AdBilling --no-guardian
    """
    signal.signal(signal.SIGTERM, stop_early)
    from leaderq.running.guardian import GUARDIAN_FD, watch_over  # not needed for --help

    if GUARDIAN_FD not in os.environ and _wants_guardian(given, target):
        return watch_over(ctx.find_root().obj)
    from leaderq.running.guardian_link import GuardianLink

    link = GuardianLink.from_environment()
    settings, career = _checked(given, target)
    _collect_seldom(settings.gc_threshold)
    configure(settings.log_format, settings.log_level, settings.log_config)
    if link is not None:
        link.use_servers(settings.zookeeper, zookeeper_security(settings))
    return work(settings, make_career(career, target), link)


def _collect_seldom(threshold: int) -> None:
    """Let Python's garbage collector look after so many objects made, if it looks sooner.

    Batches of records are thousands of objects that live for milliseconds and hold no cycle: with
    the usual threshold of 700 a drain spends up to half of its time on looking at them in vain. A
    library must leave that to the program; here, the process is leaderq's.
    """
    young, *others = gc.get_threshold()
    if 0 < young < threshold:
        gc.set_threshold(threshold, *others)


def _wants_guardian(given: Given, target: str) -> bool:
    """Whether this process is to be a guardian; sets its log up. Wrong settings: the worker says so."""
    class_name = target.rpartition(".")[2].rpartition(":")[2]
    try:
        settings = given.load(career=kebab_case(class_name)).settings
    except ConfigurationError:
        return False
    configure(settings.log_format, settings.log_level)
    return settings.guardian


def work(settings: Settings, career: ILeaderCareer, link: GuardianLink | None) -> int:
    if settings.http is None:
        return _stand(settings, career, link, None)
    from leaderq.observability.http import HttpEndpoint  # costs nothing when it is off

    with HttpEndpoint(settings.http) as endpoint:
        return _stand(settings, career, link, endpoint)


def _stand(
    settings: Settings,
    career: ILeaderCareer,
    link: GuardianLink | None,
    endpoint: HttpEndpoint | None,
) -> int:
    from leaderq.running import Runner
    from leaderq.running.descendants import end_all
    from leaderq.running.runner import handling

    events = EventBus()
    session = open_session(settings)
    try:
        runner = Runner(
            career, session, settings=settings, events=events, candidate_id=settings.id, guardian=link, leave=_leave
        )
        if endpoint is not None:
            _answer(endpoint, runner)
        with handling(runner):
            try:
                return runner.run()
            finally:
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)  # it is leaving as fast as it can
    except CareerFailed as error:
        log_failure(error)
        raise
    finally:
        end_all(os.getpid(), within_s=1.0)
        if session.close() and link is not None:
            link.forget_session()


def _answer(endpoint: HttpEndpoint, runner: Runner) -> None:
    from leaderq.observability.health import Health
    from leaderq.observability.http import health_routes
    from leaderq.observability.metrics import Metrics

    health = Health(runner.events, runner.look)
    metrics = Metrics(runner.events, health)
    endpoint.start({**health_routes(health), "/metrics": metrics.route()})


def _leave(code: int) -> None:
    """End the process and what it has started: what still runs was told to stop, and did not."""
    if code == ExitCode.FORCED and sys.stderr is not None and sys.stderr.isatty():
        # Past the log: this is a signal handler, and what it has interrupted may hold its lock.
        os.write(sys.stderr.fileno(), b"leaderq: left at the second signal, without a hand-over\n")
    from leaderq.running.descendants import end_all

    end_all(os.getpid(), within_s=0.2)
    logging.shutdown()  # bounded: see BackgroundHandler
    os._exit(code)


def _checked(given: Given, target: str) -> tuple[Settings, type[ILeaderCareer]]:
    """Settings and class, or the problems of both at once."""
    problems: list[str] = []
    career = configuration = None
    try:
        career = find_career(target, Path.cwd())
    except ConfigurationError as error:
        problems += error.problems
        cause = error
    try:
        configuration = given.load(career=career_name(career) if career else None)
    except ConfigurationError as error:
        problems += error.problems
        cause = error
    if career is None or configuration is None:
        raise ConfigurationError(*problems) from cause
    return configuration.settings, career
