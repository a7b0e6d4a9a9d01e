"""``leaderq doctor``: what is missing, unreachable or not as it should be.

One function for each check; each yields findings, and none raises for what it finds.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from leaderq.career import ILeaderCareer, career_name
from leaderq.cli.career_loading import find_career, make_career
from leaderq.cli.entry import exit_code
from leaderq.cli.options import CONNECTION, Given, Verb, json_option, switch, takes_settings
from leaderq.cli.output import Shade, quiet, shaded, write_json
from leaderq.clock import now_s
from leaderq.config import Configuration, Section, Settings
from leaderq.errors import ConfigurationError, LeaderqError
from leaderq.exits import ExitCode

if TYPE_CHECKING:
    from leaderq.zookeeper import Session

_PROBES = 9
_OPTIONAL = {"confluent-kafka": "confluent", "prometheus-client": "metrics"}


class Verdict(str, Enum):
    """How a check came out; the value is the word shown."""

    OK = "ok"
    ADVICE = "advice"
    FAILED = "failed"


_SHADES = {Verdict.OK: Shade.GOOD, Verdict.ADVICE: Shade.WARNING, Verdict.FAILED: Shade.BAD}


@dataclass(frozen=True)
class Finding:
    """One thing looked at. ``error`` is what a failed check raised, if it raised: it decides the
    exit code.
    """

    check: str
    verdict: Verdict
    detail: str
    error: LeaderqError | None = None


def _python() -> Iterator[Finding]:
    """The interpreter, and the clock that leases are measured on."""
    yield Finding(
        "python",
        Verdict.OK,
        f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})",
    )
    if hasattr(time, "CLOCK_BOOTTIME"):
        yield Finding(
            "lease clock", Verdict.OK, "CLOCK_BOOTTIME: goes on while this host is suspended"
        )
    else:
        yield Finding(
            "lease clock",
            Verdict.ADVICE,
            "CLOCK_MONOTONIC: do not suspend this host while it leads",
        )


def _packages() -> Iterator[Finding]:
    """The client libraries, and the one that makes reading Kafka fast."""
    for name in ("kazoo", "kafka-python"):
        try:
            yield Finding(name, Verdict.OK, version(name))
        except PackageNotFoundError:
            yield Finding(name, Verdict.FAILED, "is not installed; run: pip install leaderq")
    if find_spec("crc32c") is not None:
        yield Finding("crc32c", Verdict.OK, version("crc32c"))
    else:
        yield Finding(
            "crc32c",
            Verdict.ADVICE,
            "is not installed, and Kafka is read many times slower; run: pip install crc32c",
        )
    for name, extra in _OPTIONAL.items():
        try:
            yield Finding(name, Verdict.OK, version(name))
        except PackageNotFoundError:
            yield Finding(
                name,
                Verdict.OK,
                f"is not installed; if you want it: pip install 'leaderq[{extra}]'",
            )


def _configuration(found: Configuration) -> Iterator[Finding]:
    """Where settings come from."""
    given = sorted({source for name in found.sources if (source := found.source(name))})
    yield Finding(
        "configuration", Verdict.OK, f"from {', '.join(given)}" if given else "defaults only"
    )


def _zookeeper(settings: Settings) -> Iterator[Finding]:
    """Whether a session can be had, how quick it is, and whether careers can be kept in it."""
    from leaderq.cli.connecting import open_session

    try:
        with open_session(settings) as session:
            yield Finding(
                "zookeeper",
                Verdict.OK,
                f"{settings.zookeeper} answers; a round trip takes"
                f" {_round_trip_ms(session):.1f} ms",
            )
            yield _session_timeout(session, settings)
            yield _root(session, settings.root)
    except LeaderqError as error:
        yield Finding("zookeeper", Verdict.FAILED, str(error), error)


def _kafka(settings: Settings) -> Iterator[Finding]:
    """Whether a broker answers."""
    try:
        from leaderq.kafka.topics import check_reachable

        check_reachable(settings.kafka, settings.kafka_security, settings.connect_timeout_s)
    except LeaderqError as error:
        yield Finding("kafka", Verdict.FAILED, str(error), error)
    else:
        yield Finding("kafka", Verdict.OK, f"{settings.kafka} answers")


def _career(career: type[ILeaderCareer], target: str, settings: Settings) -> Iterator[Finding]:
    """Whether a career could be run. Nothing of its code is called but its constructor."""
    from leaderq.kafka.career import KafkaLeaderCareer
    from leaderq.kafka.career_check import Severity, check_career

    verdicts = {
        Severity.FINE: Verdict.OK,
        Severity.ADVICE: Verdict.ADVICE,
        Severity.FATAL: Verdict.FAILED,
    }
    name = settings.career or career_name(career)
    try:
        made = make_career(career, target)
        if not isinstance(made, KafkaLeaderCareer):
            yield Finding(
                "career", Verdict.OK, f"{name} can be made from {target}; it drains no topics"
            )
            return
        for found in check_career(made, name, settings):
            yield Finding(found.what, verdicts[found.severity], found.sentence, found.error)
    except LeaderqError as error:
        problems = error.problems if isinstance(error, ConfigurationError) else (str(error),)
        yield from (Finding("career", Verdict.FAILED, problem, error) for problem in problems)


def _java() -> Iterator[Finding]:
    """Whether ``servers up`` and ``demo`` have a Java to run on; nothing else needs one."""
    try:
        from leaderq.testing.java import find_java

        found = find_java()
    except LeaderqError as error:
        yield Finding("java", Verdict.ADVICE, str(error))
    else:
        yield Finding(
            "java",
            Verdict.OK,
            f"{found.version} ({found.source}: {found.program}), for leaderq servers and leaderq"
            " demo",
        )


def _round_trip_ms(session: Session) -> float:
    times = []
    for _ in range(_PROBES):
        began = now_s()
        session.exists("/")
        times.append(now_s() - began)
    return median(times) * 1000


def _session_timeout(session: Session, settings: Settings) -> Finding:
    granted, wanted = session.timeout_s, settings.session_timeout_s
    if abs(granted - wanted) < 0.001:
        return Finding("session time-out", Verdict.OK, f"{granted:g} s, as asked for")
    return Finding(
        "session time-out",
        Verdict.ADVICE,
        f"{granted:g} s were granted, not {wanted:g} s; see minSessionTimeout and maxSessionTimeout"
        " of the servers",
    )


def _root(session: Session, root: str) -> Finding:
    """Made and removed in one transaction, with a child, so that nothing is left behind."""
    from leaderq.zookeeper import Create, Delete

    parts = root.split("/")[1:]
    paths = ["/" + "/".join(parts[: at + 1]) for at in range(len(parts))]
    missing = [path for path in paths if session.exists(path) is None]
    probes = [*missing, f"{root}/doctor-{os.urandom(4).hex()}"]
    try:
        session.multi(
            [*(Create(path, b"") for path in probes), *(Delete(path) for path in reversed(probes))]
        )
    except LeaderqError as error:
        return Finding("root", Verdict.FAILED, f"{root} cannot be written: {error}", error)
    return Finding(
        "root",
        Verdict.OK,
        f"{root} can be written" + (" (made when first used)" if missing else ""),
    )


@click.command(cls=Verb)
@switch("--quick", help="check only ZooKeeper and what is local, not Kafka and Java")
@click.option(
    "--career",
    "target",
    metavar="MODULE:CLASS",
    help=(
        "also check this career: topics, what this user may do, dead letters; needs ZooKeeper and"
        " Kafka"
    ),
)
@takes_settings(*CONNECTION, Section.KAFKA)
@json_option
def doctor(given: Given, quick: bool, target: str | None, as_json: bool) -> int:
    """Check Python, packages, configuration, ZooKeeper, Kafka and Java, and say what to do about
    each fault; with --career, whether that career could be run.

    Exit codes: 0 nothing failed (there may be advice), 2 configuration or credentials, 3 a server
    did not answer, 1 anything else. Nothing is left behind on any server.

    \b
    Examples:
      leaderq doctor
      leaderq doctor --quick --zookeeper zk1:2181
      leaderq doctor --career billing:AdBilling
      leaderq doctor --json | jq -r 'select(.verdict == "failed").detail'
    """
    quiet()
    code: int = ExitCode.OK
    for finding in _findings(given, quick, target):
        if as_json:
            write_json(
                {"check": finding.check, "verdict": finding.verdict.value, "detail": finding.detail}
            )
        else:
            verdict = shaded(f"{finding.verdict.value:<7}", _SHADES[finding.verdict])
            click.echo(f"{verdict} {finding.check:<17} {finding.detail}")
        if finding.verdict is Verdict.FAILED and code is ExitCode.OK:
            code = exit_code(finding.error) if finding.error else ExitCode.FAILED
    return code


def _findings(given: Given, quick: bool, target: str | None) -> Iterator[Finding]:
    yield from _python()
    yield from _packages()
    if not quick:
        yield from _java()
    career: type[ILeaderCareer] | None = None
    try:
        if target is not None:
            career = find_career(target, Path.cwd())
        configuration = given.load(career=career_name(career) if career else None)
    except ConfigurationError as error:
        for problem in error.problems:
            yield Finding("configuration", Verdict.FAILED, problem, error)
        return
    yield from _configuration(configuration)
    yield from _zookeeper(configuration.settings)
    if not quick:
        yield from _kafka(configuration.settings)
    if career is not None:
        yield from _career(career, str(target), configuration.settings)
