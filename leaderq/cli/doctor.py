"""``leaderq doctor``: finds what is missing, unreachable, or not as it should be.

Each check is one function. It yields findings, and raises no error for what it finds.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import TYPE_CHECKING

import click

from leaderq.admin.text import harmless
from leaderq.base import chance, clock
from leaderq.base.exits import ExitCode
from leaderq.career import Career, ILeaderCareer
from leaderq.cli.career_loading import ChosenCareer, choose_career, make_career
from leaderq.cli.connecting import open_session, zookeeper_security
from leaderq.cli.ensemble import ensemble_of, judge_servers, judge_tick, roles_of
from leaderq.cli.entry import exit_code
from leaderq.cli.finding import Finding, Verdict
from leaderq.cli.options import CONNECTION, JSON, Given, switch, verb
from leaderq.cli.output import Shade, quiet, shaded, write_json
from leaderq.config import DEFAULT, Section, Settings
from leaderq.errors import AccessRefused, ConfigurationError, LeaderqError, told

if TYPE_CHECKING:
    from leaderq.config import Configuration
    from leaderq.kafka import OffsetStore, StoreContext
    from leaderq.kafka.career import KafkaCareer
    from leaderq.kafka.declaration import Declaration
    from leaderq.kafka.groups import Deployment
    from leaderq.kafka.topics import Access, TopicView
    from leaderq.zookeeper import Session

_PROBES = 9


_OK, _ADVICE, _FAILED = Verdict
_SHADES = {_OK: Shade.GOOD, _ADVICE: Shade.WARNING, _FAILED: Shade.BAD}
_PACKAGES = {
    "kazoo": (_FAILED, "; run: pip install leaderq"),
    "kafka-python": (_FAILED, "; run: pip install leaderq"),
    "crc32c": (_ADVICE, ", and Kafka is read many times slower; run: pip install crc32c"),
    "confluent-kafka": (_OK, "; if you want it: pip install 'leaderq[confluent]'"),
    "prometheus-client": (_OK, "; if you want it: pip install 'leaderq[metrics]'"),
    "opentelemetry-api": (_OK, "; if you want it: pip install 'leaderq[tracing]'"),
}


def _python() -> Iterator[Finding]:
    """Check the interpreter, the clock that leases are measured on, and the client libraries."""
    found = f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})"
    yield Finding("python", _OK, found)
    if hasattr(time, "CLOCK_BOOTTIME"):
        yield Finding("lease clock", _OK, "CLOCK_BOOTTIME: goes on while this host is suspended")
    else:
        advice = "CLOCK_MONOTONIC: do not suspend this host while it leads"
        yield Finding("lease clock", _ADVICE, advice)
    for name, (verdict, without) in _PACKAGES.items():
        try:
            yield Finding(name, _OK, version(name))
        except PackageNotFoundError:
            yield Finding(name, verdict, f"is not installed{without}")


def _java() -> Finding:
    """Whether ``servers up`` and ``demo`` have a Java to run on; nothing else needs Java."""
    from leaderq.testing.java import find_java

    try:
        found = find_java()
    except LeaderqError as error:
        return Finding("java", _ADVICE, str(error))
    java = f"{found.version} ({found.source}: {found.program})"
    return Finding("java", _OK, f"{java}, for leaderq servers and leaderq demo")


def _zookeeper(settings: Settings) -> Iterator[Finding]:
    """Whether a session can be opened, how fast it is, and whether it can store careers."""
    try:
        with open_session(settings) as session:
            took = f"a round trip takes {_round_trip_ms(session):.1f} ms"
            yield Finding("zookeeper", _OK, f"{settings.zookeeper} answers; {took}")
            yield _session_timeout(session, settings)
            yield from _ensemble(session, settings)
            yield _root(session, settings.root)
    except LeaderqError as error:
        yield Finding("zookeeper", _FAILED, str(error), error)


def _ensemble(session: Session, settings: Settings) -> Iterator[Finding]:
    """Check who leads the servers, and whether their tick is such that leases hold."""
    security = zookeeper_security(settings)
    tls = None if security is None else security.ssl_context()
    if tls is not None:
        tls.check_hostname = False  # they are asked by number; nothing secret is told
    views = ensemble_of(session, tls)
    yield from judge_servers(views, roles_of(session))
    yield from judge_tick(views, session.timeout_s, settings.tick_s)


def _round_trip_ms(session: Session) -> float:
    times = []
    for _ in range(_PROBES):
        began = clock.now_s()
        session.exists("/")
        times.append(clock.now_s() - began)
    return median(times) * 1000


def _session_timeout(session: Session, settings: Settings) -> Finding:
    granted, wanted = session.timeout_s, settings.session_timeout_s
    if abs(granted - wanted) < 0.001:
        return Finding("session time-out", _OK, f"{granted:g} s, as asked for")
    limits = "see minSessionTimeout and maxSessionTimeout of the servers"
    detail = f"{granted:g} s were granted, not {wanted:g} s; {limits}"
    return Finding("session time-out", _ADVICE, detail)


def _root(session: Session, root: str) -> Finding:
    """Check whether ``root`` can be written: make it and a child, and remove both, in one
    transaction, so that nothing is left behind.
    """
    from leaderq.zookeeper import Create, Delete

    parts = root.split("/")[1:]
    paths = ["/" + "/".join(parts[: at + 1]) for at in range(len(parts))]
    missing = [path for path in paths if session.exists(path) is None]
    probes = [*missing, f"{root}/doctor-{chance.token_bytes(4).hex()}"]
    creates, deletes = (Create(path, b"") for path in probes), map(Delete, reversed(probes))
    try:
        session.multi([*creates, *deletes])
    except LeaderqError as error:
        return Finding("root", _FAILED, f"{root} cannot be written: {error}", error)
    return Finding("root", _OK, f"{root} can be written{' (made when first used)' * bool(missing)}")


def _kafka(settings: Settings) -> Finding:
    """Whether a broker answers."""
    from leaderq.kafka.topics import check_reachable

    try:
        check_reachable(settings.kafka, settings.kafka_security, settings.connect_timeout_s)
    except LeaderqError as error:
        return Finding("kafka", _FAILED, str(error), error)
    return Finding("kafka", _OK, f"{settings.kafka} answers")


def _career(chosen: ChosenCareer) -> Iterator[Finding]:
    """Whether a career could be run. Only its constructor is called."""
    from leaderq.kafka.career import KafkaCareer
    from leaderq.kafka.groups import Deployment

    name, settings = chosen.name, chosen.configuration.settings
    try:
        made = make_career(chosen.kind, chosen.target)
        if isinstance(made, Career):
            made._take(settings)
        if isinstance(made, KafkaCareer):
            with open_session(settings) as session:
                here = Deployment.of(session, settings.root)
            yield from check_kafka_career(made, name, settings, here)
        else:
            detail = f"{name} can be made from {chosen.target}; it drains no topics"
            yield Finding("career", _OK, detail)
    except LeaderqError as error:
        problems = error.problems if isinstance(error, ConfigurationError) else (str(error),)
        yield from (Finding("career", _FAILED, problem, error) for problem in problems)


def check_kafka_career(
    career: KafkaCareer, name: str, settings: Settings, here: Deployment | None = None
) -> Iterator[Finding]:
    """Yield whether a career could do its work as this user, in the deployment ``here`` (``None``
    if that is not known). Reads and writes no record. Raises what asking Kafka raises, and
    ``ConfigurationError`` for a career that cannot be run as declared.
    """
    from leaderq.kafka import StoreContext
    from leaderq.kafka.assembly import access_for, topics_of
    from leaderq.kafka.declaration import check, dead_letters_of, declaration_of
    from leaderq.kafka.stores import STORES
    from leaderq.kafka.topics import describe_topics

    declared = declaration_of(career, name, settings)
    check(declared, career._problems(declared))
    letters = dead_letters_of(declared.on_error, name)
    address, access = settings.kafka, access_for(declared, settings)
    topics = topics_of(declared, address, access)
    outputs = declared.produces
    views = describe_topics(address, [*topics, *outputs, *([letters] if letters else [])], **access)
    reads = f"reads {', '.join(topics) or 'no topic yet'} as group {declared.group!r}"
    yield Finding("career", _OK, f"{name} {reads}, offsets in {declared.offsets.word!r}")
    for topic in topics:
        yield judge_topic(topic, views[topic])
    for topic in outputs:
        yield judge_output(topic, views[topic], declared.max_message_bytes)
    if letters:
        yield judge_dead_letters(letters, views[letters])
    if topics and declared.offsets.in_group and views[topics[0]].partitions:
        yield _group(declared, topics[0], here, address, access)
    if type(declared.offsets) not in STORES.values():
        yield _own_store(declared.offsets, StoreContext(name, settings.root, declared.where))


def _own_store(store: OffsetStore, context: StoreContext) -> Finding:
    try:
        found = store.check(context)
    except LeaderqError as error:
        return Finding("offsets", _FAILED, str(error), error)
    except Exception as error:  # noqa: BLE001  (the user's code)
        return Finding("offsets", _FAILED, f"the check of {store.word!r} raised {told(error)}")
    return Finding("offsets", _OK, found or f"{store.word!r} was not looked at")


def judge_topic(topic: str, view: TopicView) -> Finding:
    refused = None
    if not view.may("DESCRIBE"):
        refused = "this user may not see it, or it is not there; it needs READ and DESCRIBE"
    elif not view.partitions:
        refused = f"is not there; create it: leaderq topics create {topic}"
    elif not view.may("READ"):
        refused = "this user may not read it; it needs the operation READ"
    return _health(topic, view, refused)


def judge_output(topic: str, view: TopicView, max_message_bytes: int) -> Finding:
    """Judge a topic that the career produces to, messages of up to ``max_message_bytes``."""
    refused, largest = None, view.max_message_bytes
    if not view.partitions:
        refused = (
            f"is named by 'produces' and not there, or this user may not see it; create it: leaderq"
            f" topics create {topic}"
        )
    elif not view.may("WRITE"):
        refused = "this user may not write there; it needs the operation WRITE"
    found = _health(topic, view, refused)
    if found.verdict is _OK and largest is not None and largest < max_message_bytes:
        detail = f"takes {largest} bytes at most, and the career's max_message_bytes is"
        return Finding(found.check, _ADVICE, f"{detail} {max_message_bytes}")
    return found


def judge_dead_letters(topic: str, view: TopicView) -> Finding:
    refused = None
    if not view.may("WRITE"):
        refused = ": this user may not write there; it needs WRITE, and CREATE if it is missing"
    elif not view.partitions and view.may("CREATE"):
        what = "for dead letters; it is made when the career is run"
        return Finding(f"topic {topic}", _OK, what)
    elif not view.partitions:
        refused = ", is not there, and this user may not create it: leaderq topics create " + topic
    elif view.min_in_sync is not None and view.in_sync < view.min_in_sync:
        refused = (
            f", takes no record: {view.in_sync} replicas are in sync, and min.insync.replicas is"
            f" {view.min_in_sync}"
        )
    return _health(topic, view, refused and f"for dead letters{refused}")


def _health(topic: str, view: TopicView, refused: str | None) -> Finding:
    verdict, detail = _ADVICE, refused or ""
    copies = f"{view.partitions} partitions, {view.in_sync} of {view.replicas} replicas in sync"
    if refused is not None:
        verdict = _FAILED
    elif view.leaderless:
        verdict = _FAILED
        detail = (
            f"{view.leaderless} of {view.partitions} partitions have no leader; is a broker down?"
        )
    elif view.replicas == 1:
        detail = f"{copies}: its records are lost with the disk of one broker"
    elif view.in_sync < view.replicas:
        detail = f"{copies}; is a broker down?"
    else:
        verdict, detail = _OK, copies
    return Finding(f"topic {topic}", verdict, detail)


def _group(
    declared: Declaration, topic: str, here: Deployment | None, address: str, access: Access
) -> Finding:
    """Whether the career may use its group, and who else is in it."""
    from leaderq.kafka.groups import describe_group, rivalry
    from leaderq.kafka.topics import stored_offsets

    group = declared.group
    try:
        stored = stored_offsets(address, group, **access)
        view = describe_group(address, group, **access)
    except AccessRefused as error:
        return Finding("group", _FAILED, f"{error}; it needs READ on group {group!r}", error)
    if (trouble := view.trouble(declared.name)) is not None:
        return Finding("group", _FAILED, trouble)
    if here is not None and (rivals := here.rivals(note for _, note in stored.values())):
        return Finding("group", _ADVICE, rivalry(rivals))
    found = [where for where in stored if where.topic == topic]
    begun = f"committed {len(found)} partitions of {topic}" if found else "committed nothing yet"
    if view.others(declared.name):
        detail = f"{view.sentence(declared.name)}; its partitions are shared with them; it has"
        return Finding("group", _ADVICE, f"{detail} {begun}")
    return Finding("group", _OK, f"{group!r} may be used; it has {begun}")


@verb(
    switch("--quick", help="check only ZooKeeper and what is local, not Kafka and Java"),
    click.Option(
        ["--career", "target"],
        metavar="NAME|MODULE:CLASS",
        help="also check this career: its topics, permissions and dead letters; needs both servers",
    ),
    JSON,
    *CONNECTION,
    Section.KAFKA,
)
def doctor(given: Given) -> int:
    """Check Python, packages, configuration, ZooKeeper, Kafka and Java, and say what to do about
    each fault. With --career, also check whether that career could be run. About ZooKeeper's
    servers, say who leads them, and whether their tick and the session time-out are such that
    leases hold.

    If a career is given by NAME, its class is that of [careers.NAME] in the configuration file,
    else the one that its candidates run.

    Exit codes: 0 nothing failed (there may be advice), 2 configuration or credentials, 3 a server
    did not answer, 1 anything else. Nothing is left behind on any server.

    \b
    Examples:
      leaderq doctor --quick --zookeeper zk1:2181
      leaderq doctor --career billing:AdBilling
      leaderq doctor --career ad-billing
      leaderq doctor --json | jq -r 'select(.verdict == "failed").detail'
    """
    quiet()
    code: int = ExitCode.OK
    for found in _findings(given):
        check, verdict, detail = found.check, found.verdict, found.detail
        if given.as_json:
            write_json({"check": check, "verdict": verdict.value, "detail": detail})
        else:
            word = shaded(f"{verdict.value:<7}", _SHADES[verdict])
            click.echo(f"{word} {check:<17} {harmless(detail)}")
        if verdict is _FAILED and code is ExitCode.OK:
            code = exit_code(found.error) if found.error else ExitCode.FAILED
    return code


def _findings(given: Given) -> Iterator[Finding]:
    yield from _python()
    if not given.quick:
        yield _java()
    chosen: ChosenCareer | None = None
    try:
        if given.target is not None:
            chosen = choose_career(given, given.target)
        configuration = given.load() if chosen is None else chosen.configuration
    except LeaderqError as error:
        for problem in error.problems if isinstance(error, ConfigurationError) else (str(error),):
            yield Finding("configuration", _FAILED, problem, error)
        return
    given_by = sorted(
        {source for name in configuration.sources if (source := configuration.source(name))}
    )
    detail = f"from {', '.join(given_by)}" if given_by else "defaults only"
    yield Finding("configuration", _OK, detail)
    yield from _zookeeper(configuration.settings)
    career = None if chosen is None else chosen.kind
    if not given.quick and _needs_kafka(career, configuration):
        yield _kafka(configuration.settings)
    if chosen is not None:
        yield from _career(chosen)


def _needs_kafka(career: type[ILeaderCareer] | None, configuration: Configuration) -> bool:
    """Whether to ask Kafka. Not for a career without topics, unless somebody has set Kafka's
    address.
    """
    from leaderq.kafka.career import KafkaCareer

    is_set = configuration.source("kafka") != DEFAULT
    return career is None or is_set or issubclass(career, KafkaCareer)
