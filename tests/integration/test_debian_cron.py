"""Debian's cron itself on the nights when clocks change, beside what a schedule makes of them.

Needs ``apt-get install cron libfaketime`` and the right to mount (root); skipped elsewhere. cron
runs in a world of its own, 600 times as fast; what it starts notes the real time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leaderq.schedules.definition import when_of

_FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
_RATE = 600
_NEAR_S = 900
"""So far may a start be behind its time, of that world: one and a half seconds of ours."""
_SCRIPT = """
set -e
mount -t tmpfs none /var/spool/cron
mount -t tmpfs none /run
mkdir -m 1730 /var/spool/cron/crontabs
install -m 600 "$1/crontab" /var/spool/cron/crontabs/root
date +%s.%N >"$1/began"
LD_PRELOAD=$2 FAKETIME="@$3 x$4" timeout -s KILL "$5" cron -f || true
"""
NIGHTS = [
    ("Europe/Berlin", "2026-03-29 00:40:00", 4.5),
    ("Europe/Berlin", "2026-10-25 00:40:00", 5.5),
    ("Australia/Lord_Howe", "2026-10-04 00:40:00", 3.5),
    ("Australia/Lord_Howe", "2026-04-05 00:40:00", 3.5),
    ("Asia/Kolkata", "2026-03-29 00:40:00", 3.0),
]
EXPRESSIONS = [
    *("30 2 * * *", "0 3 * * *", "0 1 * * *", "0 * * * *", "*/30 2 * * *", "0,30 2 * * *"),
    *("15 2 * * *", "45 1 * * *", "30 1-3 * * *", "*/30 * * * *"),
]

pytestmark = [
    pytest.mark.skipif(
        shutil.which("cron") is None or _FAKETIME is None or os.geteuid() != 0,
        reason="needs root, and: apt-get install cron libfaketime",
    ),
    pytest.mark.timeout(300),
]


def started(
    folder: Path, tz: str, begin: str, hours: float, expressions: list[str]
) -> list[list[float]]:
    """When cron started each of these, in seconds since the epoch of its world."""
    lines = [f"{one} date +\\%s.\\%N >>{folder}/{n}\n" for n, one in enumerate(expressions)]
    (folder / "crontab").write_text("SHELL=/bin/sh\n" + "".join(lines))
    real_s = hours * 3600 / _RATE
    words = [str(folder), str(_FAKETIME), begin, str(_RATE), f"{real_s:.2f}"]
    command = ["unshare", "-m", "sh", "-c", _SCRIPT, "sh", *words]
    subprocess.run(command, env={**os.environ, "TZ": tz}, check=True, capture_output=True)
    began = float((folder / "began").read_text())
    first = datetime.fromisoformat(begin).replace(tzinfo=ZoneInfo(tz)).timestamp()
    found = []
    for number in range(len(expressions)):
        notes = folder / str(number)
        times = notes.read_text().split() if notes.exists() else []
        found.append([first + (float(one) - began) * _RATE for one in times])
    return found


def quarters(times: list[float]) -> list[int]:
    """The quarters of an hour that these fall into, each once."""
    return sorted({int(at // 900) for at in times})


def test_schedules_tick_when_debians_cron_does(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(len(NIGHTS))]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(len(NIGHTS)) as pool:
        runs = [
            pool.submit(started, folder, tz, begin, hours, EXPRESSIONS)
            for folder, (tz, begin, hours) in zip(folders, NIGHTS, strict=True)
        ]
    wrong = []
    for run, (tz, begin, hours) in zip(runs, NIGHTS, strict=True):
        first = datetime.fromisoformat(begin).replace(tzinfo=ZoneInfo(tz)).timestamp()
        until = first + hours * 3600 - _NEAR_S
        for expression, seen in zip(EXPRESSIONS, run.result(), strict=True):
            ours = when_of(expression, None, tz).between(round(first * 1000), round(until * 1000))
            theirs = quarters([at for at in seen if at < until])
            if theirs != (expected := quarters([at / 1000 for at in ours])):
                wrong.append((tz, begin, expression, theirs, expected))
    assert wrong == []


def test_debians_cron_refuses_59_1_which_is_minute_59_here(tmp_path: Path) -> None:
    seen = []
    for minute in ("59", "59/1"):
        folder = tmp_path / f"minute-{minute[-1]}"
        folder.mkdir()
        seen += started(folder, "UTC", "2026-01-01 00:40:00", 1.0, [f"{minute} * * * *"])
    assert [len(one) for one in seen] == [1, 0]
