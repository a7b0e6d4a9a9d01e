"""The demo cluster put up on a real engine, every plug pulled, its ledger audited, and all of it
taken down: ``make smoke``.

Contract: exit code 0 if every record that was sent is billed once and in order and each promise
held, 1 if not, 2 if it could not be tried (no engine, an old Compose, a port in use ...), which is
said in one sentence. Whatever happens, Ctrl-C too, no container, volume or network of the cluster
stays behind. The image ``leaderq-demo`` stays, as a cache. After a failure the logs are in
``logs/``.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from smoking.cluster import Broken, Cluster, healthy, until
from smoking.compose import CHECKOUT, Compose, Unfit, images, ports
from smoking.plugs import Plugs
from smoking.table import Result, table, verdict

from leaderq import LeaderqError, connect
from leaderq.cli.demo.ad_billing.audit import audit
from leaderq.cli.demo.ad_billing.shared_totals import Totals

_UP_WITHIN_S = 300.0
_BUILT_WITHIN_S = 900.0
_DRAINED_WITHIN_S = 60.0
_SENT = re.compile(
    r"^sent (\d+) records, numbers 1 to (\d+); Kafka has acknowledged them all$", re.MULTILINE
)


def main() -> int:
    """Smoke; gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="smoke.py", description="Put up the demo cluster, pull every plug, audit the ledger."
    )
    parser.add_argument(
        "--standins",
        action="store_true",
        help="build stand-ins for the official images instead of pulling them",
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    given = parser.parse_args()
    logging.basicConfig(
        format="%(asctime)s  %(message)s", datefmt="%H:%M:%S", level=logging.WARNING
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell had SIGINT ignored
        signal.signal(number, _interrupt)
    compose: Compose | None = None
    try:
        compose = Compose.found(f"leaderq-smoke-{os.getpid()}")
        published = ports()
        if given.standins:
            _build_standins()
        with _cluster(compose, list(published.values()), keep=given.keep) as (
            cluster,
            healthy_after_s,
        ):
            result = _smoked(cluster, healthy_after_s)
    except (Unfit, Broken, LeaderqError) as exc:
        print(f"smoke: error: {exc}", file=sys.stderr)
        return 2 if isinstance(exc, Unfit) else 1
    except KeyboardInterrupt:
        print("smoke: interrupted; everything was taken down", file=sys.stderr)
        return 130
    print("", *table(result.gaps), "", *verdict(result), sep="\n")
    if not given.keep and (left := compose.left_behind()):
        print(f"LEFT BEHIND: {', '.join(left)}")
        return 1
    return 1 if result.problems else 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _build_standins() -> None:
    print("stand-ins are built and used instead of the official images (--standins)", flush=True)
    done = subprocess.run([sys.executable, str(Path(__file__).parent / "standins")], check=False)
    if done.returncode != 0:
        raise Unfit("the stand-ins could not be built; what is missing is said above")


@contextmanager
def _cluster(
    compose: Compose, published: list[int], *, keep: bool
) -> Iterator[tuple[Cluster, float]]:
    _tell(f"building the image, and looking for the others (project {compose.project})")
    try:
        compose.run("build", timeout_s=_BUILT_WITHIN_S)
        _pull_what_is_missing(compose)
    except Unfit as exc:
        raise Unfit(
            f"{exc}; where the official images cannot be pulled: make smoke STANDINS=1"
        ) from exc
    try:
        began_s = time.monotonic()
        compose.run("up", "-d", timeout_s=_UP_WITHIN_S)
        healthy(compose, _UP_WITHIN_S)
        healthy_after_s = time.monotonic() - began_s
        _tell(f"all containers are healthy, {healthy_after_s:.1f} s after up")
        zookeepers, ledger_port = published[:3], published[4]
        ledger = Totals(f"postgresql://billing:billing@127.0.0.1:{ledger_port}/billing")
        address = ",".join(f"127.0.0.1:{port}" for port in zookeepers)
        with connect(address, timeout_s=10.0) as session:
            yield Cluster(compose, session, ledger, zookeepers), healthy_after_s
        ledger.close()
    except Exception as exc:
        _keep_logs(compose, exc)
        raise
    finally:
        if not keep:
            _take_down(compose)


def _pull_what_is_missing(compose: Compose) -> None:
    """So that the time until all is healthy is not that of a download."""
    for image in images(compose.run("config")):
        if not compose.docker("images", "--quiet", image).strip():
            _tell(f"pulling {image}")
            compose.docker("pull", image, timeout_s=_BUILT_WITHIN_S)


def _smoked(cluster: Cluster, healthy_after_s: float) -> Result:
    first = cluster.all_stand()
    _tell(
        f"{first.leader} leads term {first.term};"
        f" {', '.join(name for name in first.candidates if name != first.leader)} wait"
    )
    cluster.bills_on()
    plugs = Plugs(cluster, _tell)
    for pull in (
        plugs.kill,
        plugs.stop,
        plugs.pause,
        plugs.cut_off,
        plugs.restart_zookeeper,
        plugs.restart_kafka,
    ):
        pull()
        cluster.bills_on(more=400)
    sent = _last_number(cluster)
    _tell(f"the generator has stopped; {sent:,} records were sent and acknowledged")
    until(lambda: cluster.billed() >= sent, "all that was sent is billed", _DRAINED_WITHIN_S)
    return Result(plugs.gaps, audit(cluster.ledger.entries(), sent), healthy_after_s)


def _last_number(cluster: Cluster) -> int:
    """Stop the generator, and take its word for what Kafka has acknowledged: it was told so."""
    (generator,) = cluster.compose.containers("generator")
    cluster.compose.docker("stop", "--time", "30", generator)
    said = cluster.compose.docker("logs", generator)
    found = _SENT.search(said)
    if found is None or found[1] != found[2]:
        raise Broken(
            "the generator did not say that all it sent from number 1 on was acknowledged, but:"
            f" {said[-200:]!r}"
        )
    return int(found[1])


def _keep_logs(compose: Compose, error: BaseException) -> None:
    folder = CHECKOUT / "logs"
    folder.mkdir(exist_ok=True)
    path = folder / f"{compose.project}.log"
    try:
        path.write_text(
            f"{error!r}\n\n{compose.run('ps')}\n{compose.run('logs', '--no-color', '--timestamps')}"
        )
    except (Unfit, OSError) as exc:
        print(f"smoke: the logs could not be kept: {exc}", file=sys.stderr)
    else:
        print(f"smoke: the logs of all containers are in {path}", file=sys.stderr)


def _take_down(compose: Compose) -> None:
    # A second Ctrl-C must not leave half of it behind.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _tell("taking everything down")
    for container in compose.docker("ps", "--quiet", "--filter", "status=paused").split():
        if container in compose.containers():
            compose.docker("unpause", container)
    compose.run("down", "--volumes", "--remove-orphans", "--timeout", "20", timeout_s=300)


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
