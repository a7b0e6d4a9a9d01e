from __future__ import annotations

import ast
import fcntl
import inspect
import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from leaderq import errors
from leaderq.base.exits import ExitCode
from leaderq.cli import connecting, main, servers
from leaderq.cli.entry import exit_code
from leaderq.cli.options import SettingOption
from leaderq.cli.output import say, write_json
from leaderq.cli.verbs import leaderq
from leaderq.config import TABLE, Settings

VERBS = (
    "run lead deadline status top members history step-down transfer pause resume raise-floor"
    " forget schedule dead offsets queue journal config observe dashboard doctor topics servers"
    " completion version"
)
LEAVES_OF = {
    "schedule": "ls history run-now pause resume",
    "dead": "ls show replay bury",
    "offsets": "show set to-time export import",
    "queue": "ls put peek stats ack drain purge rm dead requeue pause resume",
    "config": "show sample schema",
    "observe": "rules dashboard",
    "servers": "up down",
    "topics": "create ls put show",
    "journal": "inspect verify replay send truncate",
}
REPLAY = ["dead", "replay", "--career", "c", "--topic", "t", "--kafka", "127.0.0.1:1", "--dry-run"]
TWICE = ["--at", "a-0=1", "--at", "a-0=2", "--at", "a-1=2"]
LEAD, CRON = ["lead", "--career", "c"], ["--cron", "* * * * *"]
LEAVES = [verb for verb in VERBS.split() if verb not in LEAVES_OF]
LEAVES += [f"{group} {leaf}" for group, leaves in LEAVES_OF.items() for leaf in leaves.split()]


def commands(
    group: click.Group = leaderq, path: str = "leaderq"
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def command(words: str) -> click.Command:
    return dict(commands())[f"leaderq {words}"]


def help_of(command: click.Command) -> str:
    context = click.Context(command, info_name="x", max_content_width=200, terminal_width=200)
    return re.sub(r"\s+", " ", command.get_help(context))


def test_the_verbs_are_there():
    listed = leaderq.list_commands(click.Context(leaderq))
    assert [verb for verb in listed if verb != "demo"] == VERBS.split()
    assert {path.removeprefix("leaderq ") for path, _ in commands()} - {"demo"} == set(LEAVES)


@pytest.mark.parametrize("words", LEAVES)
def test_the_help_of_every_verb_says_what_it_does_with_an_example(words):
    text = help_of(command(words))
    assert f"leaderq {words}" in text
    assert "Example" in text


def test_a_confirmation_by_a_variable_is_refused_rather_than_followed(
    capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEADERQ_QUEUE_YES", "1")
    code, _, err = run(capsys, "queue", "purge", "/orders")
    assert (code, "give --yes" in err) == (2, True)


def test_run_and_config_show_take_every_setting_and_no_command_takes_a_secret():
    options = {
        path: {name for one in found.params for name in one.opts} for path, found in commands()
    }
    flags = {row.flag for row in TABLE}
    assert flags <= options["leaderq run"] & options["leaderq config show"]
    assert not [name for names in options.values() for name in names if name.endswith("password")]


@pytest.mark.parametrize("words", LEAVES)
def test_a_verb_asks_only_for_options_that_it_takes(words):
    """They are attributes that the type checker does not know."""
    found = command(words)
    function = inspect.getclosurevars(found.callback).nonlocals["function"]
    asked = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(function)))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "given"
    }
    own = {option.name for option in found.params if not isinstance(option, SettingOption)}
    assert asked <= own | {"settings", "load"}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stauts"], "no such verb: 'stauts'; did you mean 'status'?"),
        (["topics", "create", "a b"], "'a b' cannot be the name of a topic; use up to 249 letters"),
        (["run"], "name careers as MODULE:CLASS, or give --all for those of the configuration"),
        (LEAD, "Missing argument 'COMMAND [ARGS]...'"),
        (["lead", "--", "true"], "no career is named; give --career NAME, or set LEADERQ_CAREER"),
        (["lead", "--no-guardian", "--career", "c", "true"], "leave --guardian on"),
        (["lead", "--on-exit", "run", "--career", "c", "true"], "'run' is not one of"),
        ([*LEAD, "--tz", "Europe/Berlin", "true"], "--tz means nothing without --cron"),
        ([*LEAD, *CRON, "--on-exit", "stop", "true"], "--on-exit means nothing with --cron"),
        ([*LEAD, *CRON, "--once", "k", "true"], "--cron and --once exclude each other"),
        (["status", "--zookeper", "a"], "--zookeeper"),
        (["step-down", "--timeout-s", "soon"], "'soon' is not a valid float"),
        (["deadline", "--least", "nan"], "'--least': nan is not a finite number"),
        (["status", "--zookeeper", "a:b"], "--zookeeper: 'a:b' has no usable port in 'a:b'"),
        (["run", "a:A", "--id"], "'--id' requires an argument; see leaderq run --help"),
        (["status", "counter"], "a career is named with --career NAME; see leaderq status --help"),
        (["offsets", "set", "a:A", "a-1=1"], "argument (a-1=1); see leaderq offsets set --help"),
        (["queue", "put", "/q", "--delay-s", "inf"], "'--delay-s': inf is not a finite number"),
        (["dead", "replay", "--rate", "nan"], "'--rate': nan is not a finite number"),
        (["dead", "show", f"0:{'9' * 5000}"], "is not PARTITION:OFFSET, such as 0:41"),
        (["offsets", "set", "a:A", "--at", f"a-0={'9' * 5000}"], "is not TOPIC-PARTITION=OFFSET"),
        (["offsets", "set", "a:A", *TWICE], "a-0 is given two offsets, 1 and 2; give one"),
        (["queue", "dead", "/q", "--drop", "--error", ""], "'--error': an empty text is in each"),
        ([*REPLAY, "--error", ""], "'--error': an empty text is in each letter"),
        ([*REPLAY, "--to", ""], "'' cannot be the name of a topic"),
        (["dead", "bury", "--at", f"a-0@{'9' * 5000}"], "is not TOPIC-PARTITION@OFFSET"),
    ],
)
def test_wrong_usage_is_one_clear_line_and_exit_code_2(
    capsys, monkeypatch, tmp_path, arguments, said
):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("leaderq: error: ")
    assert err.count("\n") == 1


def test_a_stream_that_takes_nothing_changes_no_failure_into_success(capsys, monkeypatch):
    with Path("/dev/full").open("w") as full, monkeypatch.context() as closed:
        closed.setattr(sys, "stdout", full)
        code = main(["version"])
        err = capsys.readouterr().err
    said = "refused what leaderq asked for: OSError: [Errno 28] No space left on device"
    assert (code, err.count("\n"), said in err) == (1, 1, True), err
    for words in (["stauts"], ["status", "--zookeeper", "a:b", "--debug"]):
        source, sink = os.pipe()
        os.close(source)
        with os.fdopen(sink, "w", 1) as unread, monkeypatch.context() as closed:
            closed.setattr(sys, "stderr", unread)
            assert main(words) == 2
            say("nobody reads this")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_every_text_is_written_into_every_encoding(monkeypatch, tmp_path, encoding):
    monkeypatch.chdir(tmp_path)
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    text = {"text": "ä\udcff\ud800"}
    write_json(text)
    assert json.loads(written.getvalue()) == text  # in UTF-8, whatever the encoding is
    assert main(["config", "show", "--id", "中"]) == 0  # into ASCII, click writes UTF-8
    shown = r"\u4e2d" if encoding == "latin-1" else "中"
    assert shown.encode() in written.getvalue()


def test_completion_says_nothing_even_of_a_variable_that_is_not_known(caplog, monkeypatch):
    monkeypatch.setattr(connecting, "quiet", lambda: caplog.set_level(logging.ERROR, "leaderq"))
    monkeypatch.setenv("LEADERQ_ZOOKEPER", "a")
    monkeypatch.setenv("LEADERQ_SETTLE_S", "soon")
    assert connecting.candidates(click.Context(leaderq), connecting.ONE_CAREER, "") == []
    assert caplog.records == []


def test_an_unknown_career_is_told_with_a_few_of_thousands(monkeypatch):
    monkeypatch.setattr(connecting, "_careers", lambda *_: [f"c-{n:04}" for n in range(5000)])
    few = r"known: c-0000, .*, c-0019 and 4980 more, which"
    with pytest.raises(errors.ConfigurationError, match=few):
        connecting.known_career(None, Settings(career="x"))


def test_what_is_known_of_servers_is_said_for_a_shell_or_that_it_cannot_be_read(
    capsys, monkeypatch, tmp_path
):
    servers._print({"zookeeper": "a:1/x y", "kafka": "k:1"}, SimpleNamespace(as_json=False))
    export = "export LEADERQ_ZOOKEEPER='a:1/x y' LEADERQ_KAFKA=k:1\n"
    assert capsys.readouterr().out == export
    monkeypatch.setenv("LEADERQ_CACHE", str(tmp_path))
    with (tmp_path / "servers.json").open("w") as state:
        fcntl.flock(state, fcntl.LOCK_EX)
        print("[]", file=state, flush=True)
        for words in (["servers", "down"], ["servers", "up", "--detach"]):
            code, _, err = run(capsys, *words)
            assert (code, "the servers are still starting; try again" in err) == (2, True)
    monkeypatch.setenv("LEADERQ_CACHE", "~nosuchuser/a")
    code, _, err = run(capsys, "servers", "down")
    assert (code, "set LEADERQ_CACHE to a folder" in err) == (2, True)


def test_errors_end_in_exit_codes_which_are_a_promise():
    unreachable = errors.ServersUnreachable("ZooKeeper", "a:1", waited_s=1)
    of_code = {
        1: (errors.RequestRefused("x"), errors.LeaderqError("x")),
        2: (errors.ConfigurationError("x"), errors.AccessRefused("x"), errors.MissingPiece("x")),
        3: (unreachable, errors.ConnectionLost("x"), errors.SessionExpired("x")),
    }
    for code, raised in of_code.items():
        assert {exit_code(one) for one in raised} == {code}
    assert " ".join(f"{one.name}={one.value}" for one in ExitCode) == (
        "OK=0 FAILED=1 USAGE=2 UNREACHABLE=3 HANDOVER_MISSED=4 NO_LEADER=5 FORCED=130"
    )
