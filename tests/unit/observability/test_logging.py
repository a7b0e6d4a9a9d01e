from __future__ import annotations

import inspect
import json
import logging
import multiprocessing
import os
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from leaderq import events, testing
from leaderq.base.arguments import require
from leaderq.errors import ConfigurationError, Deposed, Reason
from leaderq.events import CareerError, Event, EventBus, Stage
from leaderq.observability.logging import BackgroundHandler, configure, log_events, message

SAMPLES: dict[str, Any] = {
    "str": "x",
    "int": 3,
    "float": 1.5,
    "float | None": None,
    "bool": True,
    "Stage": Stage.EXECUTION,
    "Reason": Reason.LEASE,
    "BaseException": ValueError("x"),
    "BaseException | None": None,
    "Mapping[str, int]": {"t-0": 4},
}
"""What stands in a field, by its type."""
KINDS = [
    kind
    for _, kind in inspect.getmembers(events, inspect.isclass)
    if issubclass(kind, Event) and kind is not Event
]


def sample(kind: type[Event]) -> Event:
    return kind(**{one.name: SAMPLES[str(one.type)] for one in fields(kind)})


def written(capsys: pytest.CaptureFixture[str]) -> str:
    logging.getLogger().handlers[-1].flush()
    return capsys.readouterr().err


def logged(capsys, event: Event, form: str = "json", level: str = "info") -> str:
    configure(form, level)
    bus = EventBus()
    undo = log_events(bus)
    bus.publish(event)
    undo()
    bus.publish(event)
    return written(capsys)


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_has_a_phrase_of_its_own_and_is_one_line_of_json_with_all_its_fields(
    capsys, kind
):
    assert [one.phrase for one in KINDS].count(kind.phrase) == 1
    assert kind.phrase != Event.phrase
    assert message(replace(sample(kind), candidate="a")).startswith(f"{kind.phrase} career=x id=a")
    (line,) = logged(capsys, sample(kind), level="debug").splitlines()
    found = json.loads(line)
    assert found["event"] == sample(kind).name
    assert {"time", "level", "message", "logger", *(one.name for one in fields(kind))} <= set(found)
    assert found["time"].endswith("Z")


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            events.RecordDeadLettered("c", "a", "t-0", 17, ValueError("x"), 2, "t-dead"),
            'letter career=c id=a record=t-0@17 error="ValueError: x" attempts=2 topic=t-dead',
        ),
        (
            events.DrainProgress("c", "a", 3, 4, 2.54321987, None, {"t-0": 4}),
            "progress of the consumer career=c id=a term=3 lag=4 rate_per_s=2.54322",
        ),
        (
            events.WorkPaused("c", "a=b", 1, 'two "lines"\nof it'),
            'work is paused career=c id="a=b" term=1 why="two \\"lines\\"\\nof it"',
        ),
    ],
)
def test_the_values_stand_behind_the_phrase_so_that_they_can_be_told_apart(event, said):
    assert message(event).endswith(said)


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_error_of_the_career_is_logged_with_the_traceback_of_its_code(capsys, form):
    try:
        exec(compile("def work():\n    1 / 0\nwork()", "/user/code.py", "exec"))
    except ZeroDivisionError as exc:
        said = logged(capsys, CareerError("c", "a", 1, "execution", exc), form)
    if form == "json":
        assert said.count("\n") == 1
        assert "/user/code.py" in json.loads(said)["traceback"]
        assert json.loads(said)["error"] == "ZeroDivisionError: division by zero"
    else:
        assert "/user/code.py" in said
        assert 'term=1 stage=execution error="ZeroDivisionError: division by zero"' in said


def test_a_line_of_json_has_every_value_whatever_it_is(capsys):
    configure("json", "info")
    ring: list[Any] = []
    ring.append(ring)
    values = {"a": float("nan"), "b": {(1, 2): 3}, "c": ring, "d": 7, "e": 0.5}
    logging.getLogger("mine").warning("said", extra=values)
    (line,) = written(capsys).splitlines()
    found = json.loads(line, parse_constant=pytest.fail)  # of what is not JSON
    assert (found["message"], found["a"], found["b"]) == ("said", "nan", "{(1, 2): 3}")
    assert (found["c"], found["d"], found["e"]) == ("[[...]]", 7, 0.5)


def test_a_stage_that_noticed_the_end_of_its_term_is_no_traceback(capsys):
    event = CareerError("c", "a", 1, "execution", Deposed(term=1, reason=Reason.LEASE))
    assert "Traceback" not in logged(capsys, event, "text")


FILES = {
    "log.toml": (
        '[handlers.h]\nclass = "logging.FileHandler"\nfilename = "{out}"\n'
        '[root]\nlevel = "INFO"\nhandlers = ["h"]\n'
    ),
    "log.ini": (
        "[loggers]\nkeys = root\n[handlers]\nkeys = h\n[formatters]\nkeys =\n[logger_root]\nlevel ="
        " INFO\nhandlers = h\n[handler_h]\nclass = FileHandler\nargs = ('{out}',)\n"
    ),
}


@pytest.mark.parametrize("name", [*FILES])
def test_a_file_sets_logging_up_and_loggers_that_exist_go_on(capsys, tmp_path, name):
    file, out = tmp_path / name, tmp_path / "out.log"
    file.write_text(FILES[name].format(out=out))
    earlier = logging.getLogger("leaderq.earlier")
    try:
        configure("text", "info", file)
        earlier.info("one")
        logging.getLogger("kazoo.client").log(5, "password")
        assert out.read_text() == "one\n"
        assert capsys.readouterr().err == ""
    finally:
        for each in logging.getLogger().handlers:
            each.close()


@pytest.mark.parametrize(("name", "text"), [("log.toml", "= 1"), ("log.json", "[]")])
def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError, match=rf"log_config: '.*{name}' cannot be used: "):
        configure("text", "info", tmp_path / name)


UNREAD = """
import logging, sys
from leaderq.observability.logging import BackgroundHandler
log = logging.getLogger("x")
log.addHandler(BackgroundHandler(sys.stderr))
for number in range(30_000):
    log.error("line %d %s", number, "x" * 100)
print("done", flush=True)
"""


def test_a_pipe_that_nobody_reads_stops_neither_the_program_nor_its_end():
    with subprocess.Popen(
        [sys.executable, "-c", UNREAD], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        assert process.wait(60) == 0


def test_a_pipe_that_somebody_made_non_blocking_loses_no_lines():
    """The file behind standard error is shared with other processes, and so is this flag."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    log, came = logging.Logger("test"), bytearray()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading, "rb", 0) as reader:
        log.addHandler(handler := BackgroundHandler(stream))
        lines = [f"{number} {'x' * 100}" for number in range(2000)]
        for line in lines:
            log.info(line)
        handler.flush()  # as far as the pipe takes them

        def are_all_there() -> bool:
            came.extend(reader.read(1 << 16) or b"")
            return came.decode().splitlines() == lines

        testing.eventually(are_all_there)
        handler.close()


def test_a_forked_child_logs_too():
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    log = logging.Logger("test")
    log.addHandler(handler := BackgroundHandler(stream))
    log.info("parent")
    handler.flush()

    def child() -> None:
        log.info("child")
        handler.flush()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    stream.close()
    with os.fdopen(reading) as reader:
        assert reader.read().split() == ["parent", "child"]


@pytest.mark.parametrize(("level", "is_told"), [("info", False), ("debug", True)])
def test_an_error_of_leaderqs_own_has_a_traceback_in_debug_only(capsys, level, is_told):
    with pytest.raises(ConfigurationError) as raised:
        require("correct it")
    # a test's own frame is the user's, below which there are ours only
    error = raised.value.with_traceback(raised.tb.tb_next)
    said = logged(capsys, CareerError("c", "a", 1, "execution", error), "text", level=level)
    assert "correct it" in said
    assert ("Traceback" in said) is is_told
