"""The sides of ``singular.py``: what hands requests from some threads, or tasks, to one thread,
which applies them with the same handler.

Each side offers what it can of: ``post`` (no answer), ``wait`` (the same, and wait for the
outcome), ``submit`` (a future of the outcome), ``apost`` and ``acall`` (``post`` and ``wait`` for a
task) and ``done`` (all is applied, and the thread has ended).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from leaderq.singular import SingularUpdateQueue

Handler = Callable[[Any], Any]
_END = object()


@dataclass
class Side:
    """One side, ready to take requests."""

    post: Callable[[Any], Any]
    done: Callable[[], Any]
    wait: Callable[[Any], Any] | None = None
    submit: Callable[[Any], Future[Any]] | None = None
    apost: Callable[[Any], Awaitable[Any]] | None = None
    acall: Callable[[Any], Awaitable[Any]] | None = None


Maker = Callable[[Handler, "int | None"], Side]


def ours(handler: Handler, capacity: int | None) -> Side:
    """SingularUpdateQueue."""
    line: SingularUpdateQueue[Any, Any] = SingularUpdateQueue(handler, capacity=capacity)
    line.start()
    submit = line.submit
    return Side(
        line.post,
        line.close,
        lambda request: submit(request).result(),
        submit,
        line.apost,
        line.call,
    )


def ours_batches(handler: Handler, capacity: int | None) -> Side:
    """SingularUpdateQueue whose handler takes up to 1,000 at once, and applies each likewise."""

    def by_batch(batch: list[Any]) -> None:
        for request in batch:
            handler(request)

    line: SingularUpdateQueue[Any, Any] = SingularUpdateQueue(
        by_batch, capacity=capacity, max_batch=1000
    )
    line.start()
    return Side(line.post, line.close)


def executor(handler: Handler, capacity: int | None) -> Side:
    """ThreadPoolExecutor(1), which has no bound."""
    pool = ThreadPoolExecutor(1)
    pool.submit(handler, 0).result()  # starts the thread
    submit = pool.submit
    return Side(
        lambda request: submit(handler, request),
        lambda: pool.shutdown(wait=True),
        lambda request: submit(handler, request).result(),
        lambda request: submit(handler, request),
        acall=lambda request: asyncio.get_running_loop().run_in_executor(pool, handler, request),
    )


def _with_thread(
    get: Callable[[], Any],
    put: Callable[[Any], Any],
    handler: Handler,
    aput: Callable[[Any], Awaitable[Any]] | None = None,
) -> Side:
    """A queue of others with a thread that applies what it gets. Who waits makes a Future, a task
    one of its loop, as users of such queues do.
    """

    def work() -> None:
        while (item := get()) is not _END:
            if type(item) is not tuple:
                handler(item)
                continue
            request, future = item
            outcome = handler(request)
            if isinstance(future, Future):
                future.set_result(outcome)
            else:
                future.get_loop().call_soon_threadsafe(future.set_result, outcome)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def submit(request: Any) -> Future[Any]:
        future: Future[Any] = Future()
        put((request, future))
        return future

    def done() -> None:
        put(_END)
        thread.join()

    async def acall(request: Any) -> Any:
        assert aput is not None
        future = asyncio.get_running_loop().create_future()
        await aput((request, future))
        return await future

    wait = lambda request: submit(request).result()  # noqa: E731
    return Side(put, done, wait, submit, aput, acall)


def std_queue(handler: Handler, capacity: int | None) -> Side:
    """queue.Queue and a thread."""
    line: queue.Queue[Any] = queue.Queue(capacity or 0)
    return _with_thread(line.get, line.put, handler)


def simple_queue(handler: Handler, capacity: int | None) -> Side:
    """queue.SimpleQueue and a thread: no bound, no deadline, no account. What is left to gain."""
    line: queue.SimpleQueue[Any] = queue.SimpleQueue()
    return _with_thread(line.get, line.put, handler)


def semaphore(handler: Handler, capacity: int | None) -> Side:
    """queue.SimpleQueue bounded by a Semaphore, the simplest exact bound."""
    line: queue.SimpleQueue[Any] = queue.SimpleQueue()
    room = threading.Semaphore(capacity or 1)

    def put(item: Any) -> None:
        room.acquire()
        line.put(item)

    def get() -> Any:
        item = line.get()
        room.release()
        return item

    return _with_thread(get, put, handler)


def janus_queue(handler: Handler, capacity: int | None) -> Side:
    """janus: tasks put, a thread gets."""
    import janus

    line: Any = janus.Queue(capacity or 0)
    return _with_thread(line.sync_q.get, line.sync_q.put, handler, line.async_q.put)


def culsans_queue(handler: Handler, capacity: int | None) -> Side:
    """culsans: tasks put, a thread gets."""
    import culsans

    line: Any = culsans.Queue(capacity or 0)
    return _with_thread(line.sync_q.get, line.sync_q.put, handler, line.async_q.put)


def plain_lock(handler: Handler, capacity: int | None) -> Side:
    """No queue: each caller takes a lock and applies its request itself."""
    lock = threading.Lock()

    def apply(request: Any) -> Any:
        with lock:
            return handler(request)

    return Side(apply, lambda: None, apply)
