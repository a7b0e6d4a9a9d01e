"""How keys repeat and what is saved: against what a few lines of plain code find."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.cli import main
from leaderq.coalescing.analysing import (
    Duplication,
    RepeatMeter,
    SavingSimulator,
    access_log,
    key_and_time,
)
from leaderq.coalescing.automaton import EnqueueOutcome

KEYS = st.lists(st.sampled_from("abcdefgh"), max_size=60)


def measured(keys, **options):
    meter = RepeatMeter(**options)
    for key in keys:
        meter.note(key)
    return meter.result()


def distances(keys):
    last, found = {}, []
    for at, key in enumerate(keys):
        if key in last:
            found.append(at - last[key])
        last[key] = at
    return found


@given(KEYS, st.integers(1, 10))
def test_distances_are_what_plain_code_finds(keys, window):
    found = distances(keys)
    repeats = measured(keys, window=window)
    assert repeats.requests == len(keys)
    assert repeats.keys == len(set(keys))
    assert repeats.repeats == len(found) == sum(repeats.distances.values())
    assert repeats.minimum_distance == min(found, default=None)
    assert repeats.near == sum(one <= window for one in found)
    assert repeats.forgotten == 0
    assert dict(repeats.hottest).items() <= {key: keys.count(key) for key in keys}.items()


@given(KEYS, st.integers(1, 4))
def test_with_little_memory_every_distance_up_to_it_is_still_exact(keys, memory):
    repeats = measured(keys, window=1, memory=memory)
    found = [one for one in distances(keys) if one <= memory]
    assert repeats.near == sum(one == 1 for one in found)
    if found:
        assert repeats.minimum_distance == min(found)
    if not repeats.forgotten:
        assert repeats.keys == len(set(keys))


def simulated(arrivals, service_s, **options):
    simulator = SavingSimulator(service_s, **options)
    outcomes = [simulator.note(at_s, key) for at_s, key in arrivals]
    return outcomes, simulator.result()


def test_one_runs_one_waits_the_rest_are_saved():
    arrivals = [
        (0.0, "k"),
        (0.1, "k"),
        (0.2, "k"),
        (0.3, "k"),
        (0.3, "other"),
        (1.5, "k"),
        (1.6, "k"),
        (3.5, "k"),
    ]
    outcomes, saving = simulated(arrivals, 1.0)
    accept, block, decline = EnqueueOutcome.ACCEPT, EnqueueOutcome.BLOCK, EnqueueOutcome.DECLINE
    assert outcomes == [accept, block, decline, decline, accept, block, decline, accept]
    assert (saving.requests, saving.runs, saving.declined) == (8, 5, 3)
    assert saving.share == 3 / 8
    assert (saving.met, saving.duplication) == (5, Duplication.HIGH)
    assert saving.waited_s == pytest.approx((0.9 + 0.5) / 2)
    assert saving.keys_at_once == 2


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from("ab")), max_size=40), st.integers(1, 10)
)
def test_runs_of_a_key_never_overlap_and_a_run_begins_after_each_request(arrivals, service):
    arrivals = sorted(arrivals)
    outcomes, saving = simulated(arrivals, float(service))
    for key in "ab":
        runs, came = [], [at for at, one in arrivals if one == key]
        for (at, one), outcome in zip(arrivals, outcomes, strict=True):
            if one == key and outcome is not EnqueueOutcome.DECLINE:
                runs.append(max(at, runs[-1] + service) if runs else at)
        assert all(later - earlier >= service for earlier, later in itertools.pairwise(runs))
        assert all(any(run >= at for run in runs) for at in came)
    assert saving.runs + saving.declined == len(arrivals)


LINE = (
    '203.0.113.9 - alice [17/May/2015:10:05:03 +0000] "GET /a?b=1 HTTP/1.1" 200 512 "http://x/"'
    ' "Mozilla \\"5\\" (X)"'
)
AT_S = 1431857103.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("client", "203.0.113.9"),
        ("ident", "-"),
        ("user", "alice"),
        ("time", "17/May/2015:10:05:03 +0000"),
        ("request", "GET /a?b=1 HTTP/1.1"),
        ("method", "GET"),
        ("path", "/a?b=1"),
        ("protocol", "HTTP/1.1"),
        ("status", "200"),
        ("bytes", "512"),
        ("referer", "http://x/"),
        ("agent", 'Mozilla \\"5\\" (X)'),
    ],
)
def test_the_fields_of_an_access_log(key, value):
    assert access_log(key)(LINE) == (value, AT_S)


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("/a b", ("/a b", None)),
        ("/a b\t5", ("/a b", 5.0)),
        ("a\tb\t5.5", ("a\tb", 5.5)),
        ("k\t2015-05-17 10:05:03", ("k", AT_S)),
        ("k\t2015-05-17T10:05:03Z", ("k", AT_S)),
        ("k\t2015-05-17T12:05:03+02:00", ("k", AT_S)),
        ("\t1", ("", 1.0)),
    ],
)
def test_a_key_and_behind_a_tab_a_time(line, request_):
    assert key_and_time(line) == request_


LOG = "".join(
    f'10.0.0.{number % 3} - - [17/May/2015:10:05:{number:02} +0000] "GET /{number % 4} HTTP/1.1"'
    ' 200 5 "-" "x"\n'
    for number in range(40)
)


def run(capsys, *arguments):
    code = main(["analyze", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "access.log"
    path.write_text(LOG)
    return path


def test_the_figures_are_there_as_json(capsys, log):
    _, out, _ = run(
        capsys, log, "--key", "client", "--service-s", "1", "--service-s", "100", "--json"
    )
    said = json.loads(out)
    assert (said["requests"], said["keys"], said["minimum_distance"], said["duplication"]) == (
        40,
        3,
        3,
        "high",
    )
    assert [one["declined"] for one in said["savings"]] == [0, 34]
    assert said["savings"][1]["runs"] == 6


def test_what_would_harm_a_terminal_is_not_shown_as_it_is(capsys, tmp_path):
    path = tmp_path / "keys"
    path.write_text("\x1b[31m,1\n" * 3)
    out = run(capsys, path)[1]
    assert "\x1b" not in out
    assert "\\x1b[31m" in out


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        (LOG, ["--key", "url"], "an access log has no field 'url'; its fields are client"),
        (LOG, ["--key", "path", "--service-s", "0"], "0.0 is not in the range"),
        (LOG, ["--key", "path", "--rate", "-1"], "-1.0 is not in the range"),
        ("k\tsoon\n", [], "no line of"),
        ("nonsense\n", ["--key", "path"], "no line of"),
        (None, ["--key", "path"], "there is no file"),
    ],
)
def test_wrong_usage_is_said_in_a_line_with_exit_code_2(capsys, tmp_path, content, arguments, said):
    path = tmp_path / "input"
    if content is not None:
        path.write_text(content)
    code, out, err = run(capsys, path, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
