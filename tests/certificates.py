"""Certificates made by openssl; without that program the tests that need them are skipped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from leaderq.testing import ZooKeeperServer
from leaderq.testing.ports import lease_port

SELF_SIGNED = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]


class Pem(NamedTuple):
    """``both``: the key and its certificate in one file."""

    certificate: Path
    both: Path


def run_openssl(*words: str | Path) -> None:
    try:
        command = ["openssl", *map(str, words)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("making a certificate needs the program openssl")


def self_signed(folder: Path, name: str, alternatives: str) -> Pem:
    """A certificate of ``localhost`` and of what ``alternatives`` names: ``IP:127.0.0.1``."""
    key, certificate, both = (
        folder / f"{name}-{part}.pem" for part in ("key", "certificate", "both")
    )
    said = "-subj", "/CN=localhost", "-addext", f"subjectAltName={alternatives}"
    run_openssl(*SELF_SIGNED, *said, "-keyout", key, "-out", certificate)
    both.write_text(key.read_text() + certificate.read_text())
    return Pem(certificate, both)


@contextmanager
def secure_zookeeper(pem: Pem) -> Iterator[str]:
    """The address of the TLS port of a ZooKeeper server with this certificate."""
    port = lease_port()
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port.number),
        "secureClientPortAddress": "127.0.0.1",
        "ssl.clientAuth": "none",
    }
    for store, path in (("keyStore", pem.both), ("trustStore", pem.certificate)):
        values = {"location": str(path), "type": "PEM", "password": ""}
        settings |= {f"ssl.{store}.{name}": value for name, value in values.items()}
    with ZooKeeperServer(settings=settings):
        yield port.address
    port.release()
