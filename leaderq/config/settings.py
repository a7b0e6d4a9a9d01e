"""The table of settings: name, type, default, kind, help. Everything else follows from the name.

The variable of ``session_timeout_s`` is ``LEADERQ_SESSION_TIMEOUT_S``, its flag is
``--session-timeout-s``, its key in ``leaderq.toml`` is ``session_timeout_s``. A secret has no flag,
because every process of a host can read every command line. A file may hold a secret instead:
``kafka_password_file``, ``LEADERQ_KAFKA_PASSWORD_FILE``, ``--kafka-password-file``.
"""

# ruff: noqa: RUF009  (every call in the table below makes a dataclasses.field)
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from leaderq.base import chance, host
from leaderq.config import kinds
from leaderq.config.kinds import InvalidValue, ValueKind
from leaderq.errors import ConfigurationError

T = TypeVar("T")
PREFIX = "LEADERQ_"
MASK = "****"
DEFAULT = "default"  # the source of a value that nobody has set
SECRET_FILE = "_file"  # behind the name of a secret: the file that holds it


class Section(Enum):
    """A group of settings; the value is the group's heading in help."""

    CONNECTION = "ZooKeeper"
    ZOOKEEPER_SECURITY = "ZooKeeper security"
    KAFKA = "Kafka"
    CAREER = "Career"
    CANDIDATE = "Candidate"
    DRAIN = "Kafka career, instead of what its class says"
    TERM = "Term"
    PROCESS = "Process"


_CONNECTION, _SECURITY, _KAFKA, _CAREER, _CANDIDATE, _DRAIN, _TERM, _PROCESS = Section


@dataclass(frozen=True)
class KafkaSecurity:
    """Transport and credentials of the Kafka client; by default neither encryption nor a login.

    ``protocol`` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; ``mechanism`` is PLAIN,
    SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; ``ca``, ``cert`` and ``key`` are paths of PEM
    files. ``client_options`` are further options of kafka-python, such as the provider of OAuth
    tokens.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Row:
    """One setting in the table."""

    name: str
    default: Any
    kind: ValueKind
    section: Section
    help: str
    secret: bool

    @property
    def variable(self) -> str:
        """The environment variable that sets this setting."""
        return PREFIX + self.name.upper()

    @property
    def key(self) -> str:
        """The name of the setting; for a secret, the name of the setting that names its file."""
        return self.name + SECRET_FILE if self.secret else self.name

    @property
    def flag(self) -> str:
        """The command line option that sets :attr:`key`."""
        return "--" + self.key.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        """Whether the setting is on or off: its flag takes no value and has a ``--no-`` form."""
        return not self.kind.metavar

    def problem(self, value: Any) -> str | None:
        """What is wrong with ``value``, and the remedy; ``None`` if the value can be used."""
        try:
            self.kind.check(value)
        except InvalidValue as error:
            return str(error)
        return None

    def shown(self, value: Any) -> Any:
        """``value`` in a form that JSON can hold; a secret is masked."""
        if self.secret and value is not None:
            return MASK
        return str(value) if isinstance(value, Path) else value


def new_candidate_id() -> str:
    """A name for this process among the candidates: host, process id and four random digits."""
    return f"{host.name()}-{host.pid()}-{chance.token_bytes(2).hex()}"


def setting(
    default: T,
    kind: ValueKind,
    section: Section,
    help: str,
    *,
    secret: bool = False,
    make: Callable[[], T] | None = None,
) -> T:
    """A field of :class:`Settings`. If ``make`` returns the default, ``default`` only describes
    it.
    """
    row = {"default": default, "kind": kind, "section": section, "help": help, "secret": secret}
    spec: Any = {"default_factory": make} if make else {"default": default}
    made: T = field(repr=not secret, metadata=row, **spec)
    return made


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting of leaderq, checked; times are in seconds. Secrets are not in its repr.

    :func:`leaderq.config.load` makes an instance from file, environment and flags. If you make one
    yourself, each value is checked alone: not whether files exist, nor whether two settings
    conflict.

    :raises ConfigurationError: with all problems.
    """

    # A table: each setting takes as few lines as it can.
    # fmt: off
    zookeeper: str = setting(
        "127.0.0.1:2181", kinds.addresses(2181, chroot=True), _CONNECTION,
        "ZooKeeper servers; a chroot may follow the last one")
    root: str = setting(
        "/leaderq", kinds.ZNODE_PATH, _CONNECTION, "znode under which careers are kept")
    session_timeout_s: float = setting(
        10.0, kinds.seconds(0.2, 600), _CONNECTION,
        "session time-out to ask ZooKeeper for; after it the leadership of a dead host is free")
    tick_s: float | None = setting(
        None, kinds.seconds(0.001, 300), _CONNECTION,
        "tickTime of ZooKeeper's servers, where it is known; never less than it is (see doctor)")
    connect_timeout_s: float = setting(
        10.0, kinds.seconds(0.1, 600), _CONNECTION,
        "how long to wait for the first answer of a server")
    zookeeper_auth: str = setting(
        "none", kinds.choice("none", "digest", "sasl"), _SECURITY,
        "how to log in to ZooKeeper; sasl is DIGEST-MD5")
    zookeeper_user: str | None = setting(None, kinds.TEXT, _SECURITY, "user for ZooKeeper")
    zookeeper_password: str | None = setting(
        None, kinds.SECRET, _SECURITY, "password for ZooKeeper", secret=True)
    zookeeper_tls: bool = setting(
        False, kinds.SWITCH, _SECURITY, "encrypt the connection to ZooKeeper")
    zookeeper_ca: Path | None = setting(
        None, kinds.FILE, _SECURITY,
        "PEM file of the authorities that sign ZooKeeper's certificate")
    zookeeper_cert: Path | None = setting(
        None, kinds.FILE, _SECURITY, "PEM file of this client's certificate")
    zookeeper_key: Path | None = setting(
        None, kinds.FILE, _SECURITY, "PEM file of this client's private key")
    zookeeper_key_password: str | None = setting(
        None, kinds.SECRET, _SECURITY, "password of this client's private key", secret=True)
    zookeeper_verify: bool = setting(
        True, kinds.SWITCH, _SECURITY, "check ZooKeeper's certificate")
    zookeeper_check_hostname: bool = setting(
        True, kinds.SWITCH, _SECURITY, "check that ZooKeeper's certificate names its host")
    kafka: str = setting(
        "127.0.0.1:9092", kinds.addresses(9092), _KAFKA, "Kafka brokers to connect to first")
    kafka_protocol: str = setting(
        "PLAINTEXT", kinds.choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), _KAFKA,
        "transport to Kafka")
    kafka_mechanism: str | None = setting(
        None, kinds.choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"), _KAFKA,
        "how to log in to Kafka with a SASL protocol; OAUTHBEARER needs client_options")
    kafka_user: str | None = setting(None, kinds.TEXT, _KAFKA, "user for Kafka")
    kafka_password: str | None = setting(
        None, kinds.SECRET, _KAFKA, "password for Kafka", secret=True)
    kafka_ca: Path | None = setting(
        None, kinds.FILE, _KAFKA, "PEM file of the authorities that sign the brokers' certificates")
    kafka_cert: Path | None = setting(
        None, kinds.FILE, _KAFKA, "PEM file of this client's certificate")
    kafka_key: Path | None = setting(
        None, kinds.FILE, _KAFKA, "PEM file of this client's private key")
    kafka_key_password: str | None = setting(
        None, kinds.SECRET, _KAFKA, "password of this client's private key", secret=True)
    kafka_check_hostname: bool = setting(
        True, kinds.SWITCH, _KAFKA, "check that a broker's certificate names its host")
    kafka_rack: str | None = setting(
        None, kinds.TEXT, _KAFKA, "rack of this host, to read from the nearest replica")
    career: str | None = setting(
        None, kinds.NAME, _CAREER, "name of the career; default: that of its class")
    id: str = setting(
        "<host>-<pid>-<random>", kinds.TEXT, _CANDIDATE,
        "name of this candidate", make=new_candidate_id)
    prefer: str = setting(
        "any", kinds.choice("any", "newest"), _CANDIDATE,
        "newest: older candidates let newer ones lead, so that a deploy changes the leader once")
    group: str | None = setting(None, kinds.TEXT, _DRAIN, "consumer group")
    client: str | None = setting(
        None, kinds.choice("kafka-python", "confluent"), _DRAIN, "client library")
    auto_offset_reset: str | None = setting(
        None, kinds.choice("earliest", "latest", "none"), _DRAIN,
        "where to begin, and where to continue if records are gone")
    max_records: int | None = setting(
        None, kinds.count(1, 10_000_000), _DRAIN, "most records in a batch")
    max_bytes: int | None = setting(
        None, kinds.count(1, 1_000_000_000_000), _DRAIN, "most bytes of keys and values in a batch")
    max_wait_s: float | None = setting(
        None, kinds.seconds(0, 86400), _DRAIN, "how long a batch waits for more records")
    workers: int | None = setting(
        None, kinds.count(1, 1000), _DRAIN, "how many partitions to handle in parallel")
    max_records_per_s: float | None = setting(
        None, kinds.number(1e-6, 1e9), _DRAIN, "most records a second")
    max_bytes_per_s: float | None = setting(
        None, kinds.number(1e-6, 1e12), _DRAIN, "most bytes of keys and values a second")
    key_interval_s: float | None = setting(
        None, kinds.seconds(0.001, 86400), _DRAIN, "shortest time between two records of one key")
    max_message_bytes: int | None = setting(
        None, kinds.count(1, 1_000_000_000), _DRAIN, "largest message to produce")
    handle_budget_s: float | None = setting(
        None, kinds.seconds(0.01, 7 * 86400), _DRAIN, "how long one call of handle may take")
    inaugurate_budget_s: float = setting(
        30.0, kinds.seconds(0.01, 86400), _TERM, "how long inaugurate may take")
    handover_budget_s: float = setting(
        10.0, kinds.seconds(0.01, 86400), _TERM,
        "how long the current unit of work and handOver may take at the end of a term")
    settle_s: float = setting(
        0.0, kinds.seconds(0, 86400), _TERM,
        "pause before leading after a term that ended uncleanly")
    strict: bool = setting(
        False, kinds.SWITCH, _TERM,
        "after a term that ended uncleanly, wait half a session time-out before leading")
    cool_off_s: float = setting(
        1.0, kinds.seconds(0, 86400), _TERM, "pause before standing again after a failed term")
    max_failures: int = setting(
        3, kinds.count(1, 1_000_000), _TERM,
        "failed terms in a row after which to yield to other candidates")
    yield_s: float = setting(
        30.0, kinds.seconds(0, 86400), _TERM, "pause after --max-failures failed terms")
    guardian: bool = setting(
        True, kinds.SWITCH, _PROCESS,
        "keep a parent process that frees leadership at once after a crash")
    gc_threshold: int = setting(
        50_000, kinds.count(0, 1_000_000_000), _PROCESS,
        "objects made before Python's garbage collector looks; 0: Python's own threshold")
    http: str | None = setting(
        None, kinds.LISTENING, _PROCESS,
        "serve /livez, /readyz, /leader, /status and /metrics here; a port alone: this host only")
    tracing: bool = setting(
        False, kinds.SWITCH, _PROCESS,
        "trace terms, stages, ticks and handlers with OpenTelemetry")
    log_format: str = setting(
        "text", kinds.choice("text", "json"), _PROCESS, "format of the log on standard error")
    log_config: Path | None = setting(
        None, kinds.FILE, _PROCESS,
        "set logging up with this file (.toml, .json: dictConfig; else fileConfig), in the worker")
    log_level: str = setting(
        "info", kinds.choice("debug", "info", "warning", "error"), _PROCESS,
        "lowest level of log lines to write")
    # fmt: on
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    """The career's own values, of ``[careers.NAME.options]`` and ``LEADERQ_OPTIONS_*``."""

    def __post_init__(self) -> None:
        problems = []
        for row in TABLE:
            value = getattr(self, row.name)
            try:
                if value is not None or row.default is not None:
                    object.__setattr__(self, row.name, row.kind.check(value))
            except InvalidValue as error:
                problems.append(f"{row.name}: {row.shown(value)!r} {error.why}; {error.remedy}")
        if problems:
            raise ConfigurationError(*problems)

    @property
    def kafka_security(self) -> KafkaSecurity:
        """The settings of the Kafka client except the brokers' addresses: transport and login."""
        names = {spec.name for spec in fields(KafkaSecurity)} - {"client_options"}
        values = {name: getattr(self, f"kafka_{name}") for name in names}
        files = {name: str(value) for name, value in values.items() if isinstance(value, Path)}
        return KafkaSecurity(**values | files)


TABLE: tuple[Row, ...] = tuple(
    Row(name=spec.name, **spec.metadata) for spec in fields(Settings) if spec.metadata
)
BY_NAME: dict[str, Row] = {row.name: row for row in TABLE}
