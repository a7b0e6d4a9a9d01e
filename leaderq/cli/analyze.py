"""``leaderq analyze``: how the keys of a stream repeat, and what coalescing would save on it."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from leaderq.cli.options import Verb, debug_option, json_option, number
from leaderq.cli.output import harmless, quiet, write_json, write_table
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.coalescing.analysing import Analysis, Repeats, RequestLines, Saving

_SERVICES_S = (0.1, 1.0, 10.0)


@click.command(cls=Verb)
@click.argument("file", metavar="FILE")
@click.option(
    "--key", metavar="FIELD", help="FILE is an access log; the field whose repetition counts"
)
@click.option(
    "--service-s",
    type=click.FloatRange(min=0, min_open=True),
    multiple=True,
    default=_SERVICES_S,
    show_default=True,
    metavar="SECONDS",
    help="how long one run takes; may be given again",
)
@number(
    "--rate", "simulate N requests a second, evenly, instead of the stream's own times", least=1e-6
)
@number("--waiters", "how many may wait for a key", least=0, default=1)
@number("--window", "a repeat is near within so many requests", most=1_000_000, default=100)
@json_option
@debug_option
def analyze(
    file: str,
    key: str | None,
    service_s: tuple[float, ...],
    rate: float | None,
    waiters: int,
    window: int,
    as_json: bool,
) -> None:
    """Tell whether coalescing pays on the requests in FILE (- for standard input; .gz is unpacked).

    FILE has a key a line, and behind a tab, if it is known, the time of the request: seconds since
    the epoch, or ISO 8601. With --key it is an access log of Apache or nginx (fields: client,
    ident, user, time, request, method, path, protocol, status, bytes, referer, agent). What
    coalescing saves is simulated with the automaton that the coordinators use, at the stream's own
    times or at a rate, for each time that a run may take.

    Duplication is "none" if no key repeats, "high" if 5 % of the requests or more repeat a key
    nearby, else "sparse". Nearby means, in the first lines, within --window requests; in the table,
    while another of that key is worked on. Memory is bounded, however long the stream. Lines that
    cannot be used are counted, and the first of them shown, on standard error.

    \b
    Examples:
      leaderq analyze access.log --key path
      leaderq analyze access.log.gz --key client --service-s 0.5 --service-s 5 --json
      jq -r '[.user.id, .at] | @tsv' events.jsonl | leaderq analyze -
      cut -f3 clicks.tsv | leaderq analyze - --rate 2000
    """
    quiet()
    from leaderq.coalescing.analysing import RequestLines, access_log, analyse, key_and_time
    from leaderq.coalescing.analysing.requests import ACCESS_LOG_RESOLUTION_S

    parse = key_and_time if key is None else access_log(key)
    with _opened(file) as stream:
        lines = RequestLines(stream, parse)
        found = analyse(
            lines,
            services_s=service_s,
            waiters=waiters,
            rate=rate,
            resolution_s=0.0 if key is None else ACCESS_LOG_RESOLUTION_S,
            window=window,
            memory=max(window, 100_000),
        )
    _check(file, lines, found)
    if as_json:
        write_json(_as_json(lines, found))
    else:
        _show(found)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """The bytes of a file, or of standard input.

    :raises ConfigurationError: it cannot be read; also while it is.
    """
    try:
        if file == "-":
            if sys.stdin is None:
                raise ConfigurationError("FILE is -, and standard input is closed")
            yield sys.stdin.buffer
            return
        path = Path(file)
        with (
            cast("BinaryIO", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")
        ) as stream:
            yield stream
    except FileNotFoundError as exc:
        raise ConfigurationError(
            f"there is no file {file!r}; give its path, or - for standard input"
        ) from exc
    except BrokenPipeError:
        raise
    except (OSError, EOFError, zlib.error) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise ConfigurationError(f"{file!r} cannot be read: {reason}") from exc


def _check(file: str, lines: RequestLines, found: Analysis) -> None:
    """Say what could not be used; refuse what could not be used at all."""
    bad = lines.undecodable + lines.unusable
    if bad:
        click.echo(
            f"{bad} of {lines.lines} lines left out ({lines.undecodable} undecodable,"
            f" {lines.unusable} unusable):",
            err=True,
        )
        for complaint in lines.complaints:
            click.echo(f"  {complaint}", err=True)
        if bad > len(lines.complaints):
            click.echo(f"  and {bad - len(lines.complaints)} more", err=True)
    if bad and not lines.requests:
        raise ConfigurationError(
            f"no line of {file!r} can be used; give lines of a key and, behind a tab, a time, "
            "or an access log with --key FIELD"
        )
    if not lines.requests:
        click.echo(f"no requests in {file!r}", err=True)
    if found.late:
        click.echo(
            f"{found.late} requests were too far out of order, and were taken to come with the one"
            " before",
            err=True,
        )
    if found.untimed and found.savings:
        click.echo(
            f"{found.untimed} requests have no time, and were left out of the simulation", err=True
        )
    if lines.requests and not found.savings:
        click.echo(
            "no saving is shown, because nothing says when requests come; add a time behind a tab,"
            " or give --rate N",
            err=True,
        )


def _show(found: Analysis) -> None:
    repeats = found.repeats
    for name, value in _facts(found):
        click.echo(f"{name:<23} {value}")
    if repeats.hottest:
        click.echo("")
        write_table(
            ("REQUESTS", "HOTTEST KEYS"), [(count, _shown(key)) for key, count in repeats.hottest]
        )
    if found.savings:
        click.echo("")
        headings = (
            "ONE RUN TAKES",
            "RUNS",
            "SAVED",
            "SHARE",
            "WAITED",
            "MEAN WAIT",
            "KEYS AT ONCE",
            "DUPLICATION",
        )
        write_table(headings, [_row(one) for one in found.savings])


def _facts(found: Analysis) -> Iterator[tuple[str, str]]:
    repeats = found.repeats
    least = "" if repeats.forgotten == 0 else " at most"
    yield "requests", f"{repeats.requests}"
    yield "keys", f"{repeats.keys}{least}"
    yield "repeats", f"{repeats.repeats}"
    yield (
        "minimum repeat distance",
        "-" if repeats.minimum_distance is None else f"{repeats.minimum_distance}",
    )
    yield (
        "near repeats",
        f"{repeats.near} ({repeats.near_share:.1%} of all requests), within {repeats.window}",
    )
    yield "duplication", f"{repeats.duplication.value} (within {repeats.window} requests)"
    if found.rate is not None and found.span_s is not None:
        yield "rate", f"{found.rate:.4g} requests/s over {found.span_s:.0f} s"


def _row(one: Saving) -> tuple[Any, ...]:
    wait = f"{one.waited_s:.3g} s"
    saved = (f"{one.service_s:g} s", one.runs, one.declined, f"{one.share:.1%}")
    return (*saved, one.blocked, wait, one.keys_at_once, one.duplication.value)


def _shown(key: str) -> str:
    """A key that does no harm to a terminal."""
    return harmless(key[:80]) or "(empty)"


def _as_json(lines: RequestLines, found: Analysis) -> dict[str, Any]:
    whole = asdict(found)
    del whole["repeats"]
    whole["savings"] = [_with(one, "runs", "share") for one in found.savings]
    read = {"lines": lines.lines, "undecodable": lines.undecodable, "unusable": lines.unusable}
    return {**read, **_with(found.repeats, "near_share"), **whole}


def _with(found: Repeats | Saving, *properties: str) -> dict[str, Any]:
    derived = {name: getattr(found, name) for name in properties}
    return {**asdict(found), **derived, "duplication": found.duplication.value}
