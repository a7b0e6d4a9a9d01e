"""A server in a container, through testcontainers; the same life as one from jars (``LEADERQ_SERVERS=docker``).

Each server has its own container with a fixed port of the host, so that it comes back under the same address; kill is
``docker kill``, freeze is ``docker pause``. The data live in the container: ``stop`` removes it. testcontainers' reaper removes the
containers of a process that was killed.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from leaderq.errors import MissingPiece, ServerFailed
from leaderq.testing.ports import LeasedPort, lease_port
from leaderq.testing.registry import forget, remember
from leaderq.testing.scratch import ScratchFolder
from leaderq.testing.server import Server, log_tail, wait_until_serving

C = TypeVar("C", bound="ContainerServer")


@contextlib.contextmanager
def _docker_errors(doing: str) -> Iterator[None]:
    try:
        from docker.errors import DockerException  # type: ignore[import-untyped]
    except ImportError as exc:
        raise MissingPiece("LEADERQ_SERVERS is 'docker'; to use it: pip install 'leaderq[docker]'") from exc
    try:
        yield
    except (DockerException, OSError) as exc:
        raise ServerFailed(f"{doing} failed: {exc}") from exc


def connect_to_engine() -> Any:
    """testcontainers' client of the Docker engine.

    :raises MissingPiece: testcontainers is not installed, or no engine answers.
    """
    try:
        from docker.errors import DockerException
        from testcontainers.core.docker_client import DockerClient
    except ImportError as exc:
        raise MissingPiece("LEADERQ_SERVERS is 'docker'; to use it: pip install 'leaderq[docker]'") from exc
    try:
        client = DockerClient()
        client.client.ping()
    except (DockerException, OSError) as exc:
        raise MissingPiece(
            f"LEADERQ_SERVERS is 'docker', and no Docker engine answers ({exc}); start one, name it in DOCKER_HOST, "
            "or unset LEADERQ_SERVERS to run the servers from jars"
        ) from exc
    return client


class ContainerServer(Server):
    """One container, listening for clients on ``inner_port``."""

    image: str
    inner_port: int

    def __init__(self, *, name: str, alias: str = "localhost", network: Callable[[], Any] | None = None) -> None:
        self.name = name
        self._alias = alias
        self._network = network
        self._port: LeasedPort | None = None
        self._scratch: ScratchFolder | None = None
        self._container: Any = None
        self._host = "127.0.0.1"

    @abstractmethod
    def _environment(self) -> Mapping[str, str]:
        """The environment that configures the image."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server answers a real request now."""

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def port(self) -> int:
        """The port on the host; the same over restarts."""
        if self._port is None:
            self._port = lease_port()
        return self._port.number

    @property
    def alive(self) -> bool:
        return self._state() in ("running", "paused")

    @property
    def log_paths(self) -> Sequence[Path]:
        if self._container is None:
            return []
        if self._scratch is None:
            self._scratch = ScratchFolder(self.name)
        path = self._scratch.path / f"{self.name}.log"
        with _docker_errors(f"reading the log of {self.name}"):
            path.write_bytes(self._docker().logs())
        return [path]

    def start(self: C) -> C:
        if self.alive:
            return self
        try:
            self._launch()
            wait_until_serving(f"{self.what} ({self.name}, {self.image})", self._answers, self._problem)
        except ServerFailed as exc:
            tail = "\n".join(log_tail(path) for path in self.log_paths)
            self.stop()
            raise ServerFailed(f"{exc}; the end of its log:\n{tail}") from exc
        return self

    def stop(self, *, keep_data: bool = False) -> None:
        if self._container is not None:
            with _docker_errors(f"stopping {self.name}"):
                self.thaw()
                if keep_data:
                    self._docker().stop(timeout=10)
                    return
                self._container.stop()
        self._container = None
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None
        if self._port is not None:
            self._port.release()
            self._port = None
        forget(self)

    def kill(self) -> None:
        if self.alive:
            with _docker_errors(f"killing {self.name}"):
                self._docker().kill()
                self._docker().wait(timeout=30)

    def freeze(self) -> None:
        if self._state() == "running":
            with _docker_errors(f"pausing {self.name}"):
                self._docker().pause()

    def thaw(self) -> None:
        if self._state() == "paused":
            with _docker_errors(f"unpausing {self.name}"):
                self._docker().unpause()

    def heal(self) -> None:
        self.thaw()
        self.start()

    def _launch(self) -> None:
        if self._container is not None:
            with _docker_errors(f"starting {self.name} again"):
                self._docker().start()
            return
        host = connect_to_engine().host()
        self._host = "127.0.0.1" if host == "localhost" else host
        from testcontainers.core.container import DockerContainer

        remember(self)
        container = DockerContainer(self.image).with_bind_ports(self.inner_port, self.port)
        container.with_envs(**self._environment())
        if self._network is not None:
            container.with_network(self._network()).with_network_aliases(self._alias)
        self._container = container
        with _docker_errors(f"starting a container of {self.image}"):
            container.start()

    def _docker(self) -> Any:
        return self._container.get_wrapped_container()

    def _state(self) -> str:
        if self._container is None:
            return "absent"
        with _docker_errors(f"looking at {self.name}"):
            self._container.reload()
        return str(self._container.status)

    def _problem(self) -> str | None:
        state = self._state()
        return f"its container is {state}" if state in ("exited", "dead", "absent") else None
