"""The standard library's threads, locks, events and queues, for tasks of a simulated life.

They do what their models do, with two differences that the models allow: tasks that wait for a lock
are not served in order, and another task may run at each operation. Outside of a life (in a
finalizer that comes late) nothing waits: an operation that would wait raises ``RuntimeError``.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from leaderq.testing.simulation.scheduler import Process, Task, World

_world: World | None = None


def set_world(world: World | None) -> None:
    """Let all primitives belong to ``world``; one life is led at a time."""
    global _world
    _world = world


def _the_world() -> World:
    if _world is None:
        raise RuntimeError("a simulated thread would wait after its life is over")
    return _world


def running() -> Task:
    world = _world
    if world is None:
        raise RuntimeError("a simulated thread would wait after its life is over")
    task = world.current
    if task is None:
        raise RuntimeError("no simulated task is running")
    return task


def _waited(waiters: list[Task], timeout_s: float | None) -> bool:
    """Let the running task wait among ``waiters``, who are woken by taking them out. Returns
    whether it was woken; it is not among them any more.
    """
    world = _world or _the_world()
    task = world.current or running()
    waiters.append(task)
    try:
        return world.park(timeout_s)
    finally:
        if not task.woken and task in waiters:
            waiters.remove(task)


class SimulatedLock:
    """As ``threading.Lock``."""

    __slots__ = ("_locked", "_waiters")

    def __init__(self) -> None:
        self._locked = False
        self._waiters: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        world = _world
        if world is not None:
            world.countdown -= 1
            if world.countdown <= 0:
                world.preempt()
        if not self._locked:
            self._locked = True
            return True
        if not blocking or timeout == 0:
            return False
        return self._wait(None if timeout < 0 else timeout)

    __enter__ = acquire

    def _wait(self, timeout_s: float | None) -> bool:
        while True:
            try:
                woken = _waited(self._waiters, timeout_s)
            except BaseException:
                self._let_another()
                raise
            if not self._locked:
                self._locked = True
                return True
            if not woken:
                return False
            timeout_s = running().left_s()  # another one was faster

    def _let_another(self) -> None:
        waiters = self._waiters
        while not self._locked and waiters and _world is not None:
            if _world.wake(waiters.pop(0)):
                break

    def _let_go(self, *_: object) -> None:
        if not self._locked:
            raise RuntimeError("release unlocked lock")
        self._locked = False
        if self._waiters:
            self._let_another()
        world = _world
        if world is not None and not world.over:
            world.countdown -= 1
            if world.countdown <= 0:
                world.preempt()

    release = __exit__ = _let_go

    def locked(self) -> bool:
        return self._locked


class SimulatedRLock(SimulatedLock):
    """As ``threading.RLock``."""

    __slots__ = ("_count", "_owner")

    def __init__(self) -> None:
        self._locked = False
        self._waiters: list[Task] = []
        self._owner: Task | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        world = _world
        task = None if world is None else world.current
        if self._count and self._owner is task:
            self._count += 1
            return True
        if world is not None:
            world.countdown -= 1
            if world.countdown <= 0:
                world.preempt()
        if self._locked:
            if not blocking or timeout == 0:
                return False
            if not self._wait(None if timeout < 0 else timeout):
                return False
        self._locked, self._owner, self._count = True, task, 1
        return True

    __enter__ = acquire

    def release(self, *_: object) -> None:
        world = _world
        task = None if world is None else world.current
        if not self._count or self._owner is not task:
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if self._count:
            return
        self._owner = None
        self._locked = False
        if self._waiters:
            self._let_another()
        if world is not None and not world.over:
            world.countdown -= 1
            if world.countdown <= 0:
                world.preempt()

    __exit__ = release

    def _is_owned(self) -> bool:
        return self._count > 0 and self._owner is (None if _world is None else _world.current)

    def _release_save(self) -> int:
        count, self._count, self._owner = self._count, 0, None
        self._let_go()
        return count

    def _acquire_restore(self, count: int) -> None:
        super().acquire()
        self._owner, self._count = (None if _world is None else _world.current), count


class _Condition:
    """Does what ``threading.Condition`` does, on a lock of its own or on another lock."""

    __slots__ = ()

    _sleepers: list[Task]
    _is_owned: Callable[[], bool]
    _release_save: Callable[[], Any]
    _acquire_restore: Callable[[Any], object]

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_owned():
            raise RuntimeError("cannot wait on un-acquired lock")
        world, task, sleepers = _the_world(), running(), self._sleepers
        sleepers.append(task)
        saved = self._release_save()
        woken = False
        try:
            # notified while releasing the lock: then it is not among those who wait any more
            woken = task not in sleepers or world.park(timeout)
        finally:
            if not woken and task in sleepers:
                sleepers.remove(task)
            self._acquire_restore(saved)
        return woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        clock_s = running().process.clock_s
        until_s = None if timeout is None else clock_s() + timeout
        result = predicate()
        while not result:
            left_s = None if until_s is None else until_s - clock_s()
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        if not self._is_owned():
            raise RuntimeError("cannot notify on un-acquired lock")
        sleepers = self._sleepers
        while n and sleepers:
            task = sleepers.pop(0)
            if _world is not None:
                _world.wake(task)
            n -= 1

    def notify_all(self) -> None:
        self.notify(-1)


class SimulatedCondition(_Condition, SimulatedRLock):  # type: ignore[misc]
    """A condition that is its own lock, as most conditions are."""

    __slots__ = ("_sleepers",)

    def __init__(self) -> None:
        self._locked = False
        self._waiters: list[Task] = []
        self._owner: Task | None = None
        self._count = 0
        self._sleepers = []


class _ConditionOf(_Condition):
    """A condition on a lock that existed before."""

    def __init__(self, lock: SimulatedLock) -> None:
        self._sleepers = []
        self.acquire = lock.acquire
        self.release = lock.release
        if isinstance(lock, SimulatedRLock):
            self._is_owned = lock._is_owned
            self._release_save = lock._release_save
            self._acquire_restore = lock._acquire_restore
        else:
            self._is_owned = lock.locked
            self._release_save = lock.release
            self._acquire_restore = lambda _saved: lock.acquire()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def condition(lock: SimulatedLock | None = None) -> SimulatedCondition | _ConditionOf:
    """As ``threading.Condition``."""
    return SimulatedCondition() if lock is None else _ConditionOf(lock)


class FutureCondition:
    """The condition of one of the standard library's futures. It locks nothing: what a future does
    while it holds its condition gives way to no other task.
    """

    __slots__ = ("_sleepers",)

    def __init__(self) -> None:
        self._sleepers: list[Task] = []

    def acquire(self) -> None:
        world = _world
        if world is not None:
            world.countdown -= 1
            if world.countdown <= 0:
                world.preempt()

    def release(self, *_: object) -> None:
        pass

    __enter__, __exit__ = acquire, release

    def wait(self, timeout: float | None = None) -> bool:
        return _waited(self._sleepers, timeout)

    def notify_all(self) -> None:
        world, sleepers = _world, self._sleepers
        while sleepers and world is not None:
            world.wake(sleepers.pop(0))


class SimulatedEvent:
    """As ``threading.Event``."""

    __slots__ = ("_flag", "_waiters")

    def __init__(self) -> None:
        self._flag = False
        self._waiters: list[Task] = []

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        world = _world
        if world is None:
            return
        while self._waiters:
            world.wake(self._waiters.pop(0))
        if not world.over:
            world.countdown -= 1
            if world.countdown <= 0:
                world.preempt()

    def clear(self) -> None:
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        world = _world or _the_world()
        world.countdown -= 1
        if world.countdown <= 0:
            world.preempt()
        if self._flag:
            return True
        if timeout is not None and timeout <= 0:
            return False
        return _waited(self._waiters, timeout) or self._flag


class SimulatedThread:
    """As ``threading.Thread``: a task of the process that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self._target = target
        self._args = args
        self._kwargs = kwargs or {}
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        return None if self._task is None else self._task.number

    native_id = ident

    def start(self) -> None:
        if self._task is not None:
            raise RuntimeError("threads can only be started once")
        world = _the_world()
        process = running().process
        self._task = world.spawn(process, self.run, self.name)
        self._task.thread = self
        world.pause_point()

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done

    def join(self, timeout: float | None = None) -> None:
        if self._task is None:
            raise RuntimeError("cannot join thread before it is started")
        me = running()
        if me is self._task:
            raise RuntimeError("cannot join current thread")
        _the_world().pause_point()
        if self._task.done or (timeout is not None and timeout <= 0):
            return
        self._task.ended.append(me)
        try:
            _the_world().park(timeout)
        finally:
            if me in self._task.ended:
                self._task.ended.remove(me)


class SimulatedLocal:
    """As ``threading.local``."""

    def __getattribute__(self, name: str) -> Any:
        found = _locals_of(self)
        if name == "__dict__":
            return found
        if name in found:
            return found[name]
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _locals_of(self)[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del _locals_of(self)[name]
        except KeyError:
            raise AttributeError(name) from None


def _locals_of(one: SimulatedLocal) -> dict[str, Any]:
    task = running()
    if task.locals is None:
        task.locals = {}
    return task.locals.setdefault(id(one), {})


class SimulatedQueue:
    """As ``queue.Queue`` and ``queue.SimpleQueue``."""

    def __init__(self, maxsize: int = 0) -> None:
        self.maxsize = maxsize
        self.queue: deque[Any] = deque()
        self._getters: list[Task] = []
        self._putters: list[Task] = []
        self._unfinished = 0
        self._finished = SimulatedCondition()

    def qsize(self) -> int:
        return len(self.queue)

    def empty(self) -> bool:
        return not self.queue

    def full(self) -> bool:
        return 0 < self.maxsize <= len(self.queue)

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        world = _world
        while 0 < self.maxsize <= len(self.queue):
            if not block or not _waited(self._putters, timeout):
                raise queue.Full
        self.queue.append(item)
        self._unfinished += 1
        if world is None:
            return
        while self._getters and not world.wake(self._getters.pop(0)):
            pass
        if not world.over:
            world.countdown -= 1
            if world.countdown <= 0:
                world.preempt()

    def put_nowait(self, item: Any) -> None:
        self.put(item, block=False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        world = _world or _the_world()
        world.countdown -= 1
        if world.countdown <= 0:
            world.preempt()
        if not self.queue and not (block and self.await_one(timeout)):
            raise queue.Empty
        found = self.queue.popleft()
        while self._putters and not world.wake(self._putters.pop(0)):
            pass
        return found

    def await_one(self, timeout_s: float | None) -> bool:
        """Wait until something is in it; returns whether there is, within ``timeout_s``."""
        getters = self._getters
        while not self.queue:
            try:
                woken = _waited(getters, timeout_s)
            except BaseException:
                if self.queue and getters:  # woken for an item that it will not take
                    _the_world().wake(getters.pop(0))
                raise
            if self.queue or not woken:
                break
            timeout_s = running().left_s()  # another one was faster
        return bool(self.queue)

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def task_done(self) -> None:
        with self._finished:
            self._unfinished -= 1
            if not self._unfinished:
                self._finished.notify_all()

    def join(self) -> None:
        with self._finished:
            while self._unfinished:
                self._finished.wait()


class SimulatedExecutor:
    """As ``concurrent.futures.ThreadPoolExecutor``."""

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: Sequence[Any] = (),
    ) -> None:
        self._most = max_workers or 4
        self._name = thread_name_prefix or "pool"
        self._initializer = initializer
        self._initargs = initargs
        self._jobs = SimulatedQueue()
        self._idle = 0
        self._threads: list[SimulatedThread] = []
        self._is_shut = False

    def __enter__(self) -> SimulatedExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self._jobs.put((future, fn, args, kwargs))
        if self._idle < self._jobs.qsize() and len(self._threads) < self._most:
            name = f"{self._name}_{len(self._threads)}"
            thread = SimulatedThread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def _work(self) -> None:
        if self._initializer is not None:
            self._initializer(*self._initargs)
        while True:
            self._idle += 1
            job = self._jobs.get()
            self._idle -= 1
            if job is None:
                return
            future, fn, args, kwargs = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - the future's
                future.set_exception(error)
            else:
                future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut = True
        if cancel_futures:
            while not self._jobs.empty():
                job = self._jobs.get_nowait()
                if job is not None:
                    job[0].cancel()
        for _ in self._threads:
            self._jobs.put(None)
        if wait:
            for thread in self._threads:
                if thread is not running().thread:
                    thread.join()


class MainThread(SimulatedThread):
    """The thread of a task that no other thread of the program has started."""

    def __init__(self, task: Task) -> None:
        super().__init__(name=task.name)
        self._task = task


def current_thread() -> Any:
    """The simulated thread that runs."""
    task = _the_world().current
    if task is None:
        return _SCHEDULER
    if task.thread is None:
        task.thread = MainThread(task)
    return task.thread


def main_thread() -> Any:
    """The main thread of the simulated process that runs now: a stand-in for
    ``threading.main_thread``.
    """
    process: Process = running().process
    first = process.tasks[0]
    if first.thread is None:
        first.thread = MainThread(first)
    return first.thread


def get_ident() -> int:
    task = _the_world().current
    return 0 if task is None else task.number


def take_raised(_error: type[BaseException]) -> None:
    """Cancel an error that another task has raised in the running one and that has not arrived
    yet.
    """
    running().pending = None


def raise_in(ident: int, error: type[BaseException]) -> None:
    """Raise ``error`` in the task with this number when it continues."""
    for process in _the_world().processes:
        for task in process.tasks:
            if task.number == ident and not task.done:
                task.pending = error


def frame_of(ident: int) -> Any:
    """The frame that the task with this number is in now."""
    of_world = (task for process in _the_world().processes for task in process.tasks)
    return next((task.greenlet.gr_frame for task in of_world if task.number == ident), None)


_SCHEDULER = SimulatedThread(name="scheduler")
