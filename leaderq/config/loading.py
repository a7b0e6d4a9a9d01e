"""Reads the settings of this process from file, environment and flags, and checks them.

The last layer that sets a key wins, and each value remembers its source. All problems are
collected. :func:`resolve` is pure: it reads files of secrets with the function that it is given.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leaderq.config.kinds import InvalidValue, expanded
from leaderq.config.own_options import from_variables
from leaderq.config.settings import BY_NAME, DEFAULT, PREFIX, TABLE, Row, Settings
from leaderq.errors import ConfigurationError

log = logging.getLogger(__name__)

ReadText = Callable[[Path], str]

_OTHERS = "CACHE CONFIG DEBUG JAVA JSON ON_EXIT SERVERS"
_FAMILIES = "BENCH DEMO GUARDIAN OPTIONS SERVERS TERM TEST"
FOREIGN_VARIABLES = frozenset(PREFIX + name for name in _OTHERS.split())
"""Variables of other parts of leaderq, or of one verb; none of them is a setting."""
_FOREIGN_FAMILIES = tuple(f"{PREFIX}{name}_" for name in _FAMILIES.split())
# Kubernetes sets variables named after each service of the namespace, also after one "leaderq".
_KUBERNETES = re.compile(
    r"LEADERQ_(.*_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


@dataclass(frozen=True)
class Layer:
    """The settings of one source.

    ``source`` names where the value of a key comes from, ``place`` where the user changes it.
    ``as_text``: the values are texts that must be converted. Paths are relative to ``folder``.
    ``others``: keys that are allowed and are not settings. ``is_ambient``: the source may hold keys
    for other versions, so unknown keys are no error.
    """

    values: Mapping[str, Any]
    source: Callable[[str], str]
    place: Callable[[str], str]
    as_text: bool
    folder: Path
    others: tuple[str, ...] = ()
    is_ambient: bool = False


def known_keys() -> list[str]:
    """Every key that a layer may have: the settings, and for each secret the one that names its
    file.
    """
    return list(dict.fromkeys(key for row in TABLE for key in (row.name, row.key)))


def from_environment(environ: Mapping[str, str], folder: Path) -> Layer:
    """The ``LEADERQ_*`` variables that are settings; an empty one counts as absent."""
    values = {
        name[len(PREFIX) :].lower(): text
        for name, text in environ.items()
        if name.startswith(PREFIX) and text and not _is_foreign(name)
    }
    return Layer(values, _variable, _variable, True, folder, is_ambient=True)


def from_flags(flags: Mapping[str, Any], folder: Path) -> Layer:
    """The options of the command line, by setting name; ``None`` counts as absent."""
    values = {name: value for name, value in flags.items() if value is not None}
    return Layer(values, _flag, _flag, True, folder)


def from_file(
    values: Mapping[str, Any], path: Path, table: str = "", others: tuple[str, ...] = ()
) -> Layer:
    within = f" in [{table}]" if table else ""
    place = f"{within} of {path}"
    return Layer(
        values, lambda _: f"{path}{within}", lambda key: key + place, False, path.parent, others
    )


def _is_foreign(variable: str) -> bool:
    if variable[len(PREFIX) :].lower() in known_keys():
        return False
    foreign = variable in FOREIGN_VARIABLES or variable.startswith(_FOREIGN_FAMILIES)
    return foreign or _KUBERNETES.fullmatch(variable) is not None


def _variable(key: str) -> str:
    return PREFIX + key.upper()


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


@dataclass
class Resolution:
    """The settings that the layers result in. ``places`` says where the user changes each one;
    ``invalid`` names those that cannot be used.

    ``unknown`` variables are only warned of: a newer version may know them, and a version that is
    rolled back must start in the same environment.
    """

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    invalid: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def resolve(layers: Sequence[Layer], read_secret: ReadText) -> Resolution:
    """Return the settings of ``layers``, the last one winning, and their problems."""
    found = Resolution()
    for layer in layers:
        (found.unknown if layer.is_ambient else found.problems).extend(_unknown_keys(layer))
    for row in TABLE:
        _resolve_row(row, layers, found, read_secret)
    values = {row.name: found.values.get(row.name, row.default) for row in TABLE}
    for name, sentence in broken_relations(values, found.invalid):
        shown = _quoted(BY_NAME[name].shown(values[name]))
        found.problems.append(f"{found.places.get(name, name)}: {shown} {sentence}")
    return found


def problems_within(layer: Layer) -> list[str]:
    """Return what is wrong in ``layer`` alone. Reads no file, and checks no relation between
    settings.
    """
    alone = Resolution(problems=_unknown_keys(layer))
    for row in TABLE:
        _resolve_row(row, [layer], alone, lambda _: "unread")
    return alone.problems


def _resolve_row(row: Row, layers: Sequence[Layer], found: Resolution, read: ReadText) -> None:
    chosen: tuple[Layer, str] | None = None
    for layer in layers:
        keys = [key for key in dict.fromkeys((row.name, row.key)) if key in layer.values]
        if len(keys) > 1:
            both = " and ".join(layer.place(key) for key in keys)
            found.problems.append(f"{both} are both set; keep one of them")
            found.invalid.add(row.name)
        chosen = (layer, keys[0]) if keys else chosen
    if chosen is None:
        return
    layer, key = chosen
    place = found.places[row.name] = layer.place(key)
    found.sources[row.name] = layer.source(key)
    try:
        found.values[row.name] = _value(row, layer, key, read)
    except InvalidValue as error:
        found.invalid.add(row.name)
        raw = layer.values[key]
        shown = _quoted(row.shown(raw) if key == row.name else raw)
        found.problems.append(f"{place}: {shown} {error.why}; {error.remedy}")


def _value(row: Row, layer: Layer, key: str, read_secret: ReadText) -> Any:
    raw = layer.values[key]
    if key != row.name:
        if not isinstance(raw, str):
            raise InvalidValue("is not the path of a file", "write it in quotes")
        return row.kind.check(read_secret(layer.folder / expanded(raw)))
    is_text = layer.as_text and isinstance(raw, str)
    value = row.kind.check(row.kind.from_text(raw) if is_text else raw)
    return layer.folder / expanded(value) if isinstance(value, Path) else value


def _unknown_keys(layer: Layer) -> list[str]:
    known = [*known_keys(), *layer.others]
    problems = []
    for key in (key for key in layer.values if key not in known):
        hint = "remove it"
        for near in difflib.get_close_matches(key, known, n=1):
            hint = f"did you mean {layer.source(near) if layer.as_text else near}?"
        problems.append(f"{layer.place(key)} is not a setting of leaderq; {hint}")
    return problems


def _quoted(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


TOKENS = "OAUTHBEARER"
Values = Mapping[str, Any]
Uses = Callable[[Any], bool]


@dataclass(frozen=True)
class Relation:
    """A rule between settings. ``broken`` is called with the values of ``names``, each of them
    valid alone, and tells whether they conflict. The error names the first setting.
    """

    names: tuple[str, ...]
    broken: Callable[..., bool]
    sentence: str


def _logs_in(protocol: str) -> bool:
    return protocol.startswith("SASL")


def _unused(names: str, other: str, uses: Uses, sentence: str) -> Iterator[Relation]:
    """Yield rules: each of ``names`` may be set only if ``uses`` returns true for the value of
    ``other``.
    """
    for name in names.split():
        yield Relation((name, other), lambda own, use: own is not None and not uses(use), sentence)


def _key_pair(server: str) -> Iterator[Relation]:
    cert, key, password = f"{server}_cert", f"{server}_key", f"{server}_key_password"
    sentence = f"goes together with {key}; set both or neither"
    yield Relation((cert, key), lambda *both: both.count(None) == 1, sentence)
    sentence = f"is the password of {key}, which is not set; set it too"
    yield from _unused(password, key, lambda path: path is not None, sentence)


RELATIONS = (
    Relation(
        ("zookeeper_auth", "zookeeper_user", "zookeeper_password"),
        lambda auth, *login: auth != "none" and None in login,
        "needs zookeeper_user and zookeeper_password; set both",
    ),
    *_unused(
        "zookeeper_user zookeeper_password",
        "zookeeper_auth",
        lambda auth: auth != "none",
        "is not used while zookeeper_auth is 'none'; set zookeeper_auth to digest or sasl",
    ),
    *_unused(
        "zookeeper_ca zookeeper_cert zookeeper_key zookeeper_key_password",
        "zookeeper_tls",
        bool,
        "is not used while zookeeper_tls is off; turn zookeeper_tls on",
    ),
    *_key_pair("zookeeper"),
    *_key_pair("kafka"),
    Relation(
        ("zookeeper_verify", "zookeeper_ca"),
        lambda verify, ca: not verify and ca is not None,
        "is off, so zookeeper_ca is not used; leave one of them out",
    ),
    Relation(
        ("kafka_protocol", "kafka_mechanism", "kafka_user", "kafka_password"),
        lambda protocol, *login: _logs_in(protocol) and None in login and login[0] != TOKENS,
        "needs kafka_mechanism, kafka_user and kafka_password; set all three",
    ),
    *_unused(
        "kafka_mechanism kafka_user kafka_password",
        "kafka_protocol",
        _logs_in,
        "is used with SASL only; set kafka_protocol to SASL_SSL (or SASL_PLAINTEXT)",
    ),
    *_unused(
        "kafka_user kafka_password",
        "kafka_mechanism",
        lambda mechanism: mechanism != TOKENS,
        f"is not used with kafka_mechanism {TOKENS!r}; leave it out",
    ),
    *_unused(
        "kafka_ca kafka_cert kafka_key kafka_key_password",
        "kafka_protocol",
        lambda protocol: str(protocol).endswith("SSL"),
        "is used with encryption only; set kafka_protocol to SSL or SASL_SSL",
    ),
    Relation(
        ("yield_s", "cool_off_s"),
        lambda yielding, cooling: yielding < cooling,
        "is shorter than cool_off_s, the pause after one failure; make it at least as long",
    ),
)


def broken_relations(values: Values, invalid: Collection[str]) -> Iterator[tuple[str, str]]:
    """For each relation that ``values`` break, yield the setting that the error names, and a
    sentence that says what is wrong.
    """
    for relation in RELATIONS:
        mine = [values[name] for name in relation.names if name not in invalid]
        if len(mine) == len(relation.names) and relation.broken(*mine):
            yield relation.names[0], relation.sentence


CONFIG_VARIABLE = "LEADERQ_CONFIG"
FILE_NAME = "leaderq.toml"
_CAREERS = "careers"
_OPTIONS = "options"
_CLASS = "class"


@dataclass(frozen=True)
class Configuration:
    """The settings, their sources, the file that was read, and the class of each career in it."""

    settings: Settings
    sources: Mapping[str, str]
    file: Path | None
    careers: Mapping[str, str | None]

    def source(self, name: str) -> str:
        """Where the value of ``name`` comes from: *default*, a file, a variable or a flag."""
        return self.sources.get(name, DEFAULT)

    def rows(self) -> Iterator[tuple[Row, Any, str]]:
        """Each setting with its value and its source; secrets are masked."""
        for row in TABLE:
            yield row, row.shown(getattr(self.settings, row.name)), self.source(row.name)


def current_folder() -> Path:
    """Return the current directory.

    :raises ConfigurationError: it was deleted.
    """
    try:
        return Path.cwd()
    except FileNotFoundError as exc:
        what = "the current directory was deleted, and with it what would be looked for there"
        raise ConfigurationError(f"{what}; change to one that exists") from exc


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    config: str | Path | None = None,
    career: str | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Configuration:
    """Return the settings, and where each comes from.

    The last one wins: defaults, the file, its table ``[careers.NAME]``, ``LEADERQ_*`` variables,
    ``flags`` by setting name. The file is ``config``, else the one that ``LEADERQ_CONFIG`` names,
    else ``leaderq.toml`` in ``folder`` (default: the current one). ``career`` is the career's name,
    unless a setting names another; the name chooses the table. ``[careers.NAME.options]`` and
    ``LEADERQ_OPTIONS_*`` variables hold the career's own values (``Settings.options``); ``class``
    is what ``leaderq run --all`` runs.

    Any other variable ``LEADERQ_*`` is ignored, with a warning.

    :raises ConfigurationError: with every problem found.
    """
    environ = os.environ if environ is None else environ
    folder = folder or current_folder()
    chosen = (environ.get(CONFIG_VARIABLE) or None) if config is None else config
    path, document, problems = _read_file(chosen, folder)
    variables = from_environment(environ, folder)
    own = [variables, from_flags(flags or {}, folder)]
    names = [one.get("career") for one in (own[1].values, own[0].values, document)]
    name = next((name for name in names if isinstance(name, str)), career)
    careers = _careers(document, path, problems)
    layers = [*_file_layers(path, document, careers, name, problems), *own]
    found = resolve(layers, _read_secret)
    problems += found.problems
    for sentence in found.unknown:
        log.warning("variable ignored why=%r", sentence)
    for key, value in found.values.items():
        if isinstance(value, Path) and (reason := _why_unreadable(value)):
            what = f"{found.places[key]}: {str(value)!r} cannot be read: {reason}"
            problems.append(f"{what}; name a file this user may read")
    if problems:
        raise ConfigurationError(*problems)
    if career is not None and "career" not in found.values:
        found.values["career"], found.sources["career"] = career, "the class"
    options = careers.get(str(name), {}).get(_OPTIONS, {}) | from_variables(environ)
    settings = Settings(**found.values, options=options)
    return Configuration(
        settings, found.sources, path, {each: table.get(_CLASS) for each, table in careers.items()}
    )


def _careers(document: dict[str, Any], path: Path | None, problems: list[str]) -> dict[str, Any]:
    """Remove the tables of careers from ``document`` and return them; add what is wrong to
    ``problems``.
    """
    careers = document.pop(_CAREERS, {})
    tables = careers.values() if isinstance(careers, dict) else [careers]
    if not all(isinstance(table, dict) for table in tables):
        remedy = f"write a table for each career, like [{_CAREERS}.ad-billing]"
        problems.append(f"{_CAREERS} of {path} is not a set of tables; {remedy}")
        return {}
    for name, table in careers.items():
        place = f"in [{_CAREERS}.{name}] of {path}"
        if not isinstance(table.get(_OPTIONS, {}), dict):
            remedy = f"write a table of your own values, like [{_CAREERS}.{name}.{_OPTIONS}]"
            problems.append(f"{_OPTIONS} {place} is not a table; {remedy}")
        if not isinstance(table.get(_CLASS, ""), str):
            problems.append(
                f"{_CLASS} {place} is not text; write it in quotes, like 'billing:AdBilling'"
            )
        if "career" in table:
            problems.append(f"career {place} would rename what the table is chosen by; remove it")
    return dict(careers)


def _file_layers(
    path: Path | None,
    document: dict[str, Any],
    careers: Mapping[str, Any],
    career: str | None,
    problems: list[str],
) -> Iterator[Layer]:
    if path is None:
        return
    for table in [key for key, value in document.items() if isinstance(value, dict)]:
        remedy = f"write settings at the top of the file, or in [{_CAREERS}.NAME] for one career"
        if difflib.get_close_matches(table, [_CAREERS], n=1) or table == "career":
            remedy = f"did you mean [{_CAREERS}.NAME]?"
        problems.append(f"[{table}] of {path} is not a table of leaderq; {remedy}")
        del document[table]
    yield from_file(document, path)
    for name, table in careers.items():
        if name != career:
            layer = from_file(table, path, f"{_CAREERS}.{name}", (_CLASS, _OPTIONS))
            problems += problems_within(layer)
    yield from_file(careers.get(str(career), {}), path, f"{_CAREERS}.{career}", (_CLASS, _OPTIONS))


def _read_file(
    chosen: str | Path | None, folder: Path
) -> tuple[Path | None, dict[str, Any], list[str]]:
    """Return the path of the file, its tables, and what is wrong: a mistake with its line and
    column, or why the file cannot be read. The path is ``None`` if no file was chosen and there is
    no leaderq.toml.
    """
    path = Path(FILE_NAME if chosen is None else chosen)
    try:
        path = folder / expanded(path)
        return path, parsed_toml(path.read_bytes().decode("utf-8-sig")), []
    except InvalidValue as exc:
        why = str(exc)
    except OSError as exc:
        if chosen is None and isinstance(exc, FileNotFoundError):
            return None, {}, []
        why = f"cannot be read: {_reason(exc)}; name another with --config"
    except UnicodeDecodeError as exc:
        why = f"is not UTF-8 text (byte {exc.start}); save it as UTF-8"
    except ValueError as exc:
        remedy = "correct that line"
        if "end of document" in str(exc):
            remedy = "a bracket or a quote is still open, perhaps lines above"
        why = f"is not TOML: {exc}; {remedy}"
    except RecursionError:
        why = "is not usable TOML: its values are nested too deeply; correct it"
    return path, {}, [f"configuration file {str(path)!r} {why}"]


def parsed_toml(text: str) -> dict[str, Any]:
    """Return the tables of ``text``.

    :raises ValueError: the text is not TOML; the message has line and column.
    """
    if sys.version_info >= (3, 11):
        import tomllib  # here: loading a parser costs every start, and most have no file
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def _read_secret(path: Path) -> str:
    """Return the one line of the file ``path``, without the newline at its end."""
    try:
        text = path.read_bytes().decode("utf-8-sig").rstrip("\r\n")
    except OSError as exc:
        remedy = "name a file this user may read"
        raise InvalidValue(f"cannot be read: {_reason(exc)}", remedy) from exc
    except UnicodeDecodeError as exc:
        raise InvalidValue("is not UTF-8 text", "save the secret as one line of UTF-8") from exc
    except ValueError as exc:  # it has a NUL
        raise InvalidValue("is not a file name", "write the path of a file") from exc
    if not text or "\n" in text:
        raise InvalidValue("does not hold exactly one line", "save the secret as one line")
    return text


def _why_unreadable(path: Path) -> str:
    try:
        if path.is_dir():
            return "Is a directory"
        path.stat()
    except OSError as exc:  # such as a name that is too long
        return _reason(exc)
    return "" if os.access(path, os.R_OK) else "Permission denied"


def _reason(exc: OSError) -> str:
    return exc.strerror or type(exc).__name__
