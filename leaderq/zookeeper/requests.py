"""Every request that a session can send, in two forms: ``..._async`` returns a future, and the
plain form waits.

**Async forms** never block and never wait for a connection: without one the future fails at once
with :class:`~leaderq.errors.NotConnected`. If the connection breaks after the request was sent, the
future fails with :class:`~leaderq.errors.ConnectionLost`: the outcome is unknown. Callbacks of the
future run on the session's completion thread and must not block it. To cancel the future does not
take the request back.

**Sync forms** wait for at most ``timeout_s`` (default: 2T, 10 s at most), then raise
``ConnectionLost``. They must not be called from a state listener, which runs on the thread that
reads the answers.

Wrong arguments raise :class:`~leaderq.errors.ConfigurationError` at the call, in both forms.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kazoo.protocol import serialization as kazoo_wire
from kazoo.security import ACL, ANYONE_ID_UNSAFE, Permissions

from leaderq.base import clock
from leaderq.base.arguments import bytes_of, plain_function, require, unless, wanted
from leaderq.errors import ConfigurationError, ConnectionLost, LeaderqError, NodeExists, TooLarge
from leaderq.threads import primitives
from leaderq.threads.waker import bounded_s
from leaderq.zookeeper import wire
from leaderq.zookeeper.client import Client
from leaderq.zookeeper.paths import is_at_or_below, join, parent_of, validated_path
from leaderq.zookeeper.translation import error_of
from leaderq.zookeeper.watching import OneShot, Watch
from leaderq.zookeeper.wire import Failed, Operation, Read, Stat

T = TypeVar("T")
ReadResult = tuple[bytes, Stat] | list[str] | LeaderqError
ChildResult = tuple[bytes, int, int] | LeaderqError
_SHARED = Permissions.READ | Permissions.CREATE


class Answer(primitives.Future[T]):
    """The future of one request. kazoo's connection thread sets its result, so that a waiter wakes
    at once; callbacks run on the completion thread.
    """

    def __init__(self, dispatch: Callable[[Callable[[], object]], None]) -> None:
        super().__init__()
        self._dispatch = dispatch

    def add_done_callback(self, fn: Callable[[primitives.Future[T]], object]) -> None:
        dispatch = self._dispatch  # not through this future: a cycle would wait for the collector
        super().add_done_callback(lambda done: dispatch(functools.partial(fn, done)))

    def cancel(self) -> bool:
        """Stop waiting for the answer. The request is not taken back: its outcome is unknown."""
        if not self.cancelled():
            if not super().cancel():
                return False
            # Wakes concurrent.futures.wait(), which a mere cancel() does not.
            self.set_running_or_notify_cancel()
        return True


@dataclass(eq=False, slots=True)
class Reply(Generic[T]):
    """The object that kazoo holds while a request is in flight. kazoo calls its ``set`` or its
    ``set_exception``.

    Neither method raises, whatever the state of the future, because an error would end kazoo's
    connection thread. ``is_last``: whether the result of this request completes the future.
    """

    future: primitives.Future[T]
    convert: Callable[[Any], T]
    translate: Callable[[BaseException], LeaderqError]
    is_last: bool = True

    def set(self, value: Any = None) -> None:
        try:
            converted = self.convert(value)
            if self.is_last:
                self.future.set_result(converted)
        except primitives.InvalidStateError:
            pass  # nobody waits for it any more
        except Exception as exc:  # noqa: BLE001 - handed on to the caller
            self.set_exception(exc)

    def set_exception(self, exc: BaseException) -> None:
        with suppress(primitives.InvalidStateError):
            self.future.set_exception(self.translate(exc))


def failed_future(exc: BaseException) -> primitives.Future[Any]:
    future: primitives.Future[Any] = primitives.Future()
    future.set_exception(exc)
    return future


class Requests:
    """The requests of a :class:`~leaderq.zookeeper.Session`; the session itself says how to send
    one.
    """

    max_request_bytes: int = wire.MAX_REQUEST_BYTES
    _client: Client
    _chroot: str

    @property
    def chroot(self) -> str:
        """The parent of all paths; ``""`` for the root."""
        return self._chroot

    def _send_all(
        self, requests: Sequence[Any], convert: Callable[[Any], T], path: str | None
    ) -> primitives.Future[T]:
        """Send ``requests``; convert each answer. The last one becomes the result of the future."""
        raise NotImplementedError

    def _send(
        self, request: Any, convert: Callable[[Any], T], path: str | None
    ) -> primitives.Future[T]:
        return self._send_all((request,), convert, path)

    # -- async forms -------------------------------------------------------------------------------

    def create_async(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> primitives.Future[str]:
        """Create a znode; the result is its path, which the server makes ten digits longer if
        ``sequential``.

        Fails: ``NodeExists``, ``NoNode`` (no parent).
        """
        server_path, data = self._server_path(path, sequential), checked(data)
        flags = (wire.EPHEMERAL if ephemeral else 0) | (wire.SEQUENTIAL if sequential else 0)
        request = kazoo_wire.Create(server_path, data, self._acl(), flags)
        return self._send_sized(request, len(data), self._local_path, path)

    def get_async(
        self, path: str, watch: Watch | None = None
    ) -> primitives.Future[tuple[bytes, Stat]]:
        """Read a znode's data and metadata. ``watch`` is called once, at the next change or
        deletion.

        Fails: ``NoNode``.
        """
        request = kazoo_wire.GetData(self._server_path(path), _one_shot(watch, path))
        return self._send(request, lambda raw: (raw[0] or b"", Stat(*raw[1])), path)

    def exists_async(self, path: str, watch: Watch | None = None) -> primitives.Future[Stat | None]:
        """Read a znode's metadata, ``None`` if it does not exist. ``watch`` is called once, at any
        change.
        """
        request = kazoo_wire.Exists(self._server_path(path), _one_shot(watch, path))
        return self._send(request, lambda raw: None if raw is None else Stat(*raw), path)

    def children_async(self, path: str, watch: Watch | None = None) -> primitives.Future[list[str]]:
        """Read the names of a znode's children, unordered. Fails: ``NoNode``.

        ``watch`` is called once, when the next child is created or deleted.
        """
        request = kazoo_wire.GetChildren(self._server_path(path), _one_shot(watch, path))
        return self._send(request, list, path)

    def set_async(self, path: str, data: bytes, version: int = -1) -> primitives.Future[Stat]:
        """Replace a znode's data. Fails: ``NoNode``, ``BadVersion``."""
        data = checked(data, version)
        request = kazoo_wire.SetData(self._server_path(path), data, version)
        return self._send_sized(request, len(data), lambda raw: Stat(*raw), path)

    def delete_async(self, path: str, version: int = -1) -> primitives.Future[None]:
        """Delete a znode. Fails: ``NoNode``, ``BadVersion``, ``NotEmpty``."""
        checked(b"", version)
        request = kazoo_wire.Delete(self._server_path(path), version)
        return self._send(request, _nothing, path)

    def sync_async(self, path: str = "/") -> primitives.Future[None]:
        """Let this session's server catch up with earlier writes. This is not a quorum
        operation.
        """
        return self._send(kazoo_wire.Sync(self._server_path(path)), _nothing, path)

    def multi_async(
        self, operations: Sequence[Operation], *, are_valid: bool = False
    ) -> primitives.Future[list[Any]]:
        """Carry out all operations, or none of them. The result has for each a ``str`` (create), a
        ``Stat`` (set) or ``None``. ``are_valid``: the paths were checked before.

        Fails with the error of the first operation that failed by itself (``.path``, ``.index``),
        or with :class:`~leaderq.errors.TooLarge`; such a request is not sent.
        """
        operations = tuple(operations)
        prefixed = self._prefixed if are_valid else self._server_path
        with _writing_down():
            request = wire.Multi(operations, prefixed, self._acl())
        return self._send_packed(request, lambda results: _all_done(results, operations))

    def multi_read_async(self, reads: Sequence[Read]) -> primitives.Future[list[ReadResult]]:
        """Do many reads in one request. The result has for each read its result, or its error in
        its place.
        """
        reads = tuple(reads)
        with _writing_down():
            request = wire.MultiRead(reads, self._server_path)
        return self._send_packed(request, lambda results: _each(results, lambda at: reads[at].path))

    def child_data_async(
        self, parent: str, names: Sequence[str]
    ) -> primitives.Future[list[ChildResult]]:
        """Read these children of a znode in one request; the server itself must have told the
        names. The result has for each ``(data, ctime in ms, version)``, or its error in its place.
        """
        request = wire.ChildData(join(self._prefixed(parent), ""), names)
        return self._send_packed(
            request, lambda results: _each(results, lambda at: join(parent, names[at]))
        )

    def child_sizes_async(self, parent: str, names: Sequence[str]) -> primitives.Future[list[int]]:
        """Ask how many bytes each of these children (at least one) holds; 0 if it is gone. Sends
        one request for each, because ZooKeeper tells no sizes in a multiRead.
        """
        above, sizes = join(self._prefixed(parent), ""), list[int]()

        def note(raw: Any) -> list[int]:
            sizes.append(0 if raw is None else raw.dataLength)
            return sizes

        requests = [kazoo_wire.Exists(above + name, None) for name in names]
        return self._send_all(requests, note, parent)

    # -- sync forms --------------------------------------------------------------------------------

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        timeout_s: float | None = None,
    ) -> str:
        """See :meth:`create_async`."""
        future = self.create_async(path, data, ephemeral=ephemeral, sequential=sequential)
        return self._wait(future, timeout_s, path)

    def get(
        self, path: str, watch: Watch | None = None, *, timeout_s: float | None = None
    ) -> tuple[bytes, Stat]:
        """See :meth:`get_async`."""
        return self._wait(self.get_async(path, watch), timeout_s, path)

    def exists(
        self, path: str, watch: Watch | None = None, *, timeout_s: float | None = None
    ) -> Stat | None:
        """See :meth:`exists_async`."""
        return self._wait(self.exists_async(path, watch), timeout_s, path)

    def children(
        self, path: str, watch: Watch | None = None, *, timeout_s: float | None = None
    ) -> list[str]:
        """See :meth:`children_async`."""
        return self._wait(self.children_async(path, watch), timeout_s, path)

    def set(
        self, path: str, data: bytes, version: int = -1, *, timeout_s: float | None = None
    ) -> Stat:
        """See :meth:`set_async`."""
        return self._wait(self.set_async(path, data, version), timeout_s, path)

    def delete(self, path: str, version: int = -1, *, timeout_s: float | None = None) -> None:
        """See :meth:`delete_async`."""
        return self._wait(self.delete_async(path, version), timeout_s, path)

    def sync(self, path: str = "/", *, timeout_s: float | None = None) -> None:
        """See :meth:`sync_async`."""
        return self._wait(self.sync_async(path), timeout_s, path)

    def multi(
        self, operations: Sequence[Operation], *, timeout_s: float | None = None
    ) -> list[Any]:
        """See :meth:`multi_async`."""
        return self._wait(self.multi_async(operations), timeout_s, None)

    def multi_read(
        self, reads: Sequence[Read], *, timeout_s: float | None = None
    ) -> list[ReadResult]:
        """See :meth:`multi_read_async`."""
        return self._wait(self.multi_read_async(reads), timeout_s, None)

    def ensure_path(self, path: str, *, shared: str = "", timeout_s: float | None = None) -> None:
        """Create a persistent path and its missing parents, within ``timeout_s`` seconds in all.

        ``shared`` is ``path`` or one of its parents: those of ``shared`` and its parents that are
        created here get an ACL under which any user may also list and create children.
        """
        validated_path(path)
        if shared and not is_at_or_below(path, validated_path(shared)):
            problem = f"is not {path!r} or one of its parents"
            raise ConfigurationError(f"shared path {shared!r} {problem}")
        deadline = clock.awake_s() + self._wait_s(timeout_s)
        missing: list[str] = []
        # Upwards first: a user that may not touch the parents must still be able to use an existing
        # path.
        while path != "/" and self.exists(path, timeout_s=_left(deadline)) is None:
            missing.append(path)
            path = parent_of(path)
        for one in reversed(missing):
            acl = self._acl()
            if shared and is_at_or_below(shared, one) and not _is_shared(acl):
                acl = [*acl, ACL(_SHARED, ANYONE_ID_UNSAFE)]
            request = kazoo_wire.Create(self._server_path(one), b"", acl, 0)
            try:
                self._wait(self._send(request, _nothing, one), _left(deadline), one)
            except NodeExists:
                continue

    # -- inside ------------------------------------------------------------------------------------

    def _wait(self, future: primitives.Future[T], timeout_s: float | None, path: str | None) -> T:
        if self._client.is_connection_thread() and not future.done():
            raise RuntimeError(
                "a state listener must not wait for ZooKeeper: it runs on the thread that reads"
                " the answers; set an event instead"
            )
        limit_s = self._wait_s(timeout_s)
        try:
            return future.result(limit_s)
        except primitives.FutureTimeout:
            future.cancel()
            raise unanswered(limit_s, path) from None
        finally:
            del future  # its error holds this frame: a cycle would wait for the collector

    def _wait_s(self, timeout_s: float | None) -> float:
        if timeout_s is None:
            return min(10.0, 2 * self._client.connection.timeout_s)
        return bounded_s(timeout_s)

    def _acl(self) -> Sequence[ACL]:
        return self._client.default_acl or ()

    def _send_packed(
        self, request: wire.PackedRequest, convert: Callable[[Any], T]
    ) -> primitives.Future[T]:
        if request.count:
            return self._send_sized(request, self.max_request_bytes, convert, None)
        future: primitives.Future[T] = primitives.Future()
        future.set_result(convert([]))
        return future

    def _send_sized(
        self, request: Any, hint: int, convert: Callable[[Any], T], path: str | None
    ) -> primitives.Future[T]:
        if hint + 4096 > self.max_request_bytes:  # only then is the exact size worth its cost
            size, limit = len(request.serialize()) + wire.HEADER_BYTES, self.max_request_bytes
            if size > limit:
                place = "" if path is None else f" on {path}"
                what = f"a {type(request).__name__.lower()} request{place}"
                return failed_future(TooLarge(what, size=size, limit=limit, path=path))
        return self._send(request, convert, path)

    def _server_path(self, path: str, open_ended: bool = False) -> str:
        return self._prefixed(validated_path(path, open_ended=open_ended))

    def _prefixed(self, path: str, _open_ended: bool = False) -> str:
        if not self._chroot:
            return path
        return self._chroot if path == "/" else self._chroot + path

    def _local_path(self, server_path: str) -> str:
        return (server_path[len(self._chroot) :] or "/") if self._chroot else server_path


def unanswered(limit_s: float, path: str | None = None) -> ConnectionLost:
    place = "" if path is None else f" ({path})"
    what = f"no answer within {limit_s:.1f} s: the outcome is unknown{place}"
    return ConnectionLost(what, path=path)


def _is_shared(acl: Sequence[ACL]) -> bool:
    return any(one.id == ANYONE_ID_UNSAFE and one.perms & _SHARED == _SHARED for one in acl)


def _left(deadline: float) -> float:
    return max(0.0, deadline - clock.awake_s())


def _one_shot(watch: Watch | None, path: str) -> OneShot | None:
    if watch is None:
        return None
    require(plain_function("watch", watch))
    return OneShot(watch, path)


def checked(data: Any, version: Any = -1) -> bytes:
    """``data`` as bytes.

    :raises ConfigurationError: it is no bytes, or ``version`` is not a version.
    """
    found = bytes_of(data)
    is_version = isinstance(version, int) and -1 <= version < 1 << 31
    require(
        unless(found is not None, f"data of a znode is a {type(data).__name__}: give bytes"),
        wanted("version", version, is_version, "one that a Stat has, or -1 for any"),
    )
    return found or b""


@contextmanager
def _writing_down() -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError, AttributeError, OverflowError, struct.error) as exc:
        raise ConfigurationError(f"an operation cannot be written down: {exc}") from exc


def _nothing(_: object) -> None:
    return None


def _all_done(results: list[Any], operations: Sequence[Operation]) -> list[Any]:
    failures = [(index, one) for index, one in enumerate(results) if isinstance(one, Failed)]
    if not failures:
        return results  # kazoo has taken the chroot off the paths created
    index, failed = next((pair for pair in failures if not pair[1].is_consequence), failures[0])
    raise error_of(failed, operations[index].path, index)


def _each(results: list[Any], path_at: Callable[[int], str]) -> list[Any]:
    for index, one in enumerate(results):
        if isinstance(one, Failed):
            results[index] = error_of(one, path_at(index))
    return results
