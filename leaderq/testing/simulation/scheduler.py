"""Tasks, processes and time of one simulated life.

A *task* is what a thread is in reality: a greenlet that runs until it waits. All tasks of all
processes share one real thread. The scheduler decides who runs next; when all wait, time jumps to
the next thing due. Nothing is drawn from anywhere but the seed, so that the same seed gives the
same life.

Who is authoritative: :class:`World` about time, about who may run, and about the history. A
:class:`Process` dies, freezes and thaws as a whole; its clock may run fast, be set, or stand still
with its host.

What happens on each failure: a task that raises is noted in the history and ends. A life in which
nobody can go on although somebody is waited for, or in which time does not advance, ends as
:class:`LifeHangs`, with the stack of every task.
"""

from __future__ import annotations

import itertools
import random
import traceback
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, final

from greenlet import getcurrent, greenlet

from leaderq.errors import FromOutside, LeaderqError

EPOCH_S = 1_700_000_000.0
"""The calendar time at which every life begins."""
_MOST_STEPS_AT_ONCE = 200_000
MOST_READS_AT_ONCE = 20_000
_SPIN_S = 0.001
_NEVER_S = float("inf")
_LAST_TRIES = 50
_LAST = 1 << 62
"""Comes after all that is due at the same time."""


class Killed(FromOutside):
    """Raised in each task that still waits when a life is over."""


class LifeHangs(LeaderqError):
    """A simulated life did not come to its end; the message holds the stack of every task."""


class Timer:
    """Something due; see :meth:`World.at`."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], object]) -> None:
        self.action: Callable[[], object] | None = action

    def cancel(self) -> None:
        """Cancel the timer: nothing happens when it is due. May be called twice."""
        self.action = None

    def fire(self) -> None:
        """Do it, once."""
        action, self.action = self.action, None
        if action is not None:
            action()


class Process:
    """One simulated process, on a host of its own unless ``host`` is shared.

    ``rate``: how fast its clock runs, 1 is right. ``skew_s``: how far its calendar is off.
    """

    def __init__(self, world: World, name: str, host: str, pid: int) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.pid = pid
        self.alive = True
        self.frozen = False
        self.rate = 1.0
        self.skew_s = 0.0
        self.exit_code: int | None = None
        neighbour = next((one for one in reversed(world.processes) if one.host == host), None)
        # at the reading of the world's clock below; processes of one host have one clock
        self.clock_at = 1000.0 + pid if neighbour is None else neighbour.clock_s()
        self.clock_at_s = world.now_s
        self._pace = 1.0  # of its clock now: its rate, or 0 while it stands still
        self.stalled: list[Task] = []
        self.late: list[Task] = []
        """Those whose wait would be over, had its clock not stood still with it."""
        self.tasks: list[Task] = []
        self.deaths: list[Callable[[], object]] = []
        """Called when it dies, on the scheduler."""
        self.thaws: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return f"Process({self.name!r})"

    def clock_s(self) -> float:
        """Its own monotonic clock, in seconds."""
        return self.clock_at + (self.world.now_s - self.clock_at_s) * self._pace

    def calendar_s(self) -> float:
        """Its own calendar, in seconds since 1970."""
        return EPOCH_S + self.world.now_s + self.skew_s

    def run_clock(self, rate: float) -> None:
        """Let the process's clock run at ``rate`` from now on; tasks that already wait are not
        told.
        """
        self.rate = rate
        if self._pace:
            self._set_pace(rate)

    def _set_pace(self, pace: float) -> None:
        self.clock_at, self.clock_at_s = self.clock_s(), self.world.now_s
        self._pace = pace

    def spawn(self, target: Callable[[], object], name: str) -> Task:
        """Start a task of this process; it runs when the scheduler picks it."""
        return self.world.spawn(self, target, name)

    def kill(self, exit_code: int = -9) -> None:
        """End it as ``kill -9`` does: between two instructions, nothing more runs."""
        if not self.alive:
            return
        self.alive = False
        self.exit_code = exit_code
        self.stalled.clear()
        self.world.note("died", process=self.name, exit_code=exit_code)
        for told in self.deaths:
            told()

    def exit(self, exit_code: int) -> None:
        """End the process from within; does not return."""
        self.kill(exit_code)
        if self.world.current is not None and self.world.current.process is self:
            self.world.never()

    def freeze(self) -> None:
        """Stop it, as SIGSTOP or a long collection of garbage does: its clock runs on."""
        if self.alive and not self.frozen:
            self.frozen = True
            self.world.note("frozen", process=self.name)

    def thaw(self) -> None:
        """Let it go on."""
        if not self.alive or not self.frozen:
            return
        self.frozen = False
        if not self._pace:
            self._set_pace(self.rate)
        self.world.note("thawed", process=self.name)
        self.world.make_ready(self.stalled)
        self.stalled = []
        late, self.late = self.late, []
        for task in late:
            self.world._time_out(task)
        for told in self.thaws:
            told()

    def freeze_with_clock(self) -> None:
        """Stop the process and its clock, as when a virtual machine is paused: it does not notice
        the time.
        """
        self.freeze()
        self._set_pace(0.0)


@final
class Task:
    """One thread of a simulated process."""

    __slots__ = (
        "done",
        "due_s",
        "ended",
        "greenlet",
        "locals",
        "name",
        "number",
        "parked",
        "pending",
        "process",
        "thread",
        "until_s",
        "woken",
    )

    def __init__(self, process: Process, name: str, number: int) -> None:
        self.process = process
        self.name = name
        self.number = number
        self.greenlet: greenlet
        self.parked = False
        self.woken = False
        self.done = False
        self.until_s = _NEVER_S
        """When its wait ends, by its process's clock."""
        self.due_s = _NEVER_S
        """When the world looks at that next; perhaps too early, for a wait that is over."""
        self.pending: type[BaseException] | BaseException | None = None
        """Raised in it when it goes on, as an asynchronous exception is."""
        self.ended: list[Task] = []  # who waits for its end
        self.thread: Any = None
        self.locals: dict[int, dict[str, Any]] | None = None

    def left_s(self) -> float | None:
        """What is left of the time of its last wait; ``None``: it had none."""
        return None if self.until_s == _NEVER_S else self.until_s - self.process.clock_s()

    def __repr__(self) -> str:
        return f"Task({self.process.name}/{self.name})"


class World:
    """One life: time, processes, chance and the history; everything comes from ``seed``.

    ``preempt``: how many operations on locks, events and queues a task makes, on average, before
    another task may run although this one could go on.
    """

    def __init__(self, seed: int | str, *, preempt: int = 12) -> None:
        self.seed = seed
        self.now_s = 0.0
        """Seconds since the life began."""
        self.current: Task | None = None
        self.over = False
        self.processes: list[Process] = []
        self.history: list[tuple[float, str, str, dict[str, Any]]] = []
        self.chance = random.Random(f"{seed}/chance").random
        """What the program draws; a number from 0 to 1."""
        self.faults = random.Random(f"{seed}/faults").random
        """What the scenario draws."""
        self.network = random.Random(f"{seed}/network").random
        self._pick = random.Random(f"{seed}/order").random
        self._preempt = preempt
        self.countdown = preempt
        self._numbers = itertools.count(1)
        self._ready: list[Task] = []
        self._due: list[tuple[float, int, Callable[[], object] | Task | None]] = []
        # what to do, or a task to look at; None: where a run ends
        self._order = itertools.count()
        self._hub = getcurrent()
        self._go_on = self._hub.switch
        self.reads = 0
        """How often tasks have read a clock since time went on."""
        self.steps = 0
        """How often a task was let run."""
        self._most_steps = _MOST_STEPS_AT_ONCE  # before time goes on

    # -- the history -------------------------------------------------------------------------------

    def note(self, what: str, process: str | None = None, **facts: Any) -> None:
        """Write a line of the history; nothing is written for a dead process."""
        if self.over:
            return
        if process is None:
            task = self.current
            if task is not None and not task.process.alive:
                return
            process = "-" if task is None else task.process.name
        self.history.append((self.now_s, process, what, facts))

    def lines(self) -> Iterator[str]:
        """The history as text; the same seed gives the same bytes."""
        for at_s, process, what, facts in self.history:
            told = "".join(f" {name}={value}" for name, value in facts.items())
            yield f"{at_s:.6f} {process} {what}{told}"

    # -- processes and tasks -----------------------------------------------------------------------

    def process(self, name: str, host: str | None = None) -> Process:
        """Start a process."""
        pid = 100 + len(self.processes)
        made = Process(self, name, host or f"host-{name}", pid)
        self.processes.append(made)
        return made

    def spawn(self, process: Process, target: Callable[[], object], name: str) -> Task:
        task = Task(process, name, next(self._numbers))

        def run() -> None:
            try:
                if not self.over:
                    target()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001 - noted; nothing may reach the scheduler
                self.note("task failed", task=name, error=repr(error))
            finally:
                task.done = True
                for one in task.ended:
                    self.wake(one)

        task.greenlet = greenlet(run, self._hub)  # when it ends the scheduler goes on
        process.tasks.append(task)
        self._ready.append(task)
        return task

    def make_ready(self, tasks: list[Task]) -> None:
        self._ready.extend(tasks)

    def wake(self, task: Task) -> bool:
        """Let a parked task go on; returns whether it was parked."""
        if not task.parked:
            return False
        task.parked, task.woken = False, True
        self._ready.append(task)
        return True

    def park(self, timeout_s: float | None = None) -> bool:
        """Let the running task wait, at most ``timeout_s`` seconds by its process's clock.

        Returns whether it was woken.
        """
        task = self.current
        if self.over:
            raise Killed
        if task is None:
            raise RuntimeError("only a task can wait; the scheduler itself was about to")
        task.parked, task.woken = True, False
        if timeout_s is None:
            task.until_s = _NEVER_S
        else:
            process, now_s = task.process, self.now_s
            left_s = timeout_s if timeout_s > 0.0 else 0.0
            clock_s = process.clock_at + (now_s - process.clock_at_s) * process._pace
            task.until_s = clock_s + left_s
            at_s = now_s + left_s / process.rate
            if at_s < task.due_s:  # else the world looks before, and sees how long it is then
                task.due_s = at_s
                heappush(self._due, (at_s, next(self._order), task))
        self._go_on()
        if self.over:
            raise Killed
        if task.pending is not None:
            self._deliver(task)
        return task.woken

    def _deliver(self, task: Task) -> None:
        error, task.pending = task.pending, None
        assert error is not None
        raise error

    def _time_out(self, task: Task) -> None:
        """Let ``task`` go on if its wait is over by its process's clock; else look again then."""
        if not task.parked or task.until_s == _NEVER_S:
            return
        process = task.process
        clock_s = process.clock_at + (self.now_s - process.clock_at_s) * process._pace
        left_s = task.until_s - clock_s
        if left_s <= 1e-9:
            task.parked = False
            self._ready.append(task)
        elif process.frozen and not process._pace:
            process.late.append(task)
        else:
            task.due_s = self.now_s + left_s / process.rate
            heappush(self._due, (task.due_s, next(self._order), task))

    def pause_point(self) -> None:
        """Let another task run, perhaps, as may happen between any two instructions in reality."""
        self.countdown -= 1
        if self.countdown <= 0:
            self.preempt()

    def preempt(self) -> None:
        """Let another task run, because ``countdown``, which every operation reduces, has reached
        its end.
        """
        self.countdown = 1 + int(self._pick() * 2 * self._preempt)
        task = self.current
        if task is None or self.over:
            return
        if self._ready or self.steps > self._most_steps:
            self._ready.append(task)
            self._go_on()
            if self.over:
                raise Killed
        else:
            self.steps += 1
        if task.pending is not None:
            self._deliver(task)

    def never(self) -> None:
        """Let the running task never continue, because its process is dead."""
        self._go_on()
        raise Killed

    def spin(self) -> None:
        """Let the running task, which has read the clock many times, wait a moment: a task that
        only reads the clock would stop all time.
        """
        if not self.over:
            self.reads = 0
            self.park(_SPIN_S)

    # -- time --------------------------------------------------------------------------------------

    def after(self, delay_s: float, action: Callable[[], object]) -> None:
        """Call ``action()`` on the scheduler, ``delay_s`` seconds from now; it must not wait, and
        cannot be cancelled.
        """
        at_s = self.now_s + delay_s if delay_s > 0 else self.now_s
        heappush(self._due, (at_s, next(self._order), action))

    def at(self, delay_s: float, action: Callable[[], object]) -> Timer:
        """As :meth:`after`; what is returned can be cancelled."""
        timer = Timer(action)
        self.after(delay_s, timer.fire)
        return timer

    def run(self, until_s: float, *, unless: Callable[[], bool] | None = None) -> bool:
        """Let the life go on until ``until_s``; return whether ``unless()`` became true before
        that.

        ``unless`` is asked whenever all tasks wait.

        :raises LifeHangs: so many steps were made that time seems to stand still.
        """
        ready, due, now_s = self._ready, self._due, self.now_s
        heappush(due, (until_s, _LAST, None))
        while True:
            if ready:
                self._run_ready(ready)
            if unless is not None and unless():
                return True
            at_s, _, what = heappop(due)
            if at_s > now_s:
                self.now_s = now_s = at_s
                self._most_steps = self.steps + _MOST_STEPS_AT_ONCE
                self.reads = 0
            if type(what) is Task:
                if what.due_s == at_s:  # else it has waited for less since, and was looked at
                    what.due_s = _NEVER_S
                    self._time_out(what)
            elif what is not None:
                what()
            elif at_s == until_s:  # else an earlier run was to end here, and ended before
                return False

    def _run_ready(self, ready: list[Task]) -> None:
        """Run the tasks that can go on, one after the other, until all wait."""
        pick = self._pick
        while ready:
            task = ready.pop()
            if ready:  # any of them, and the last one takes its place
                index = int(pick() * (len(ready) + 1))
                if index < len(ready):
                    task, ready[index] = ready[index], task
            process = task.process
            if process.frozen:
                process.stalled.append(task)
            elif process.alive:
                self.current = task
                self.steps += 1
                task.greenlet.switch()
                self.current = None
                if self.steps > self._most_steps:
                    raise LifeHangs(f"time stands still at {self.now_s:.6f} s\n{self.stacks()}")

    # -- its end -----------------------------------------------------------------------------------

    def bury(self) -> int:
        """End the life: every task that waits gets :class:`Killed`. Return how many tasks did not
        end.
        """
        self.over = True
        left = 0
        for process in self.processes:
            for task in process.tasks:
                made = task.greenlet
                self.current = task
                for _ in range(_LAST_TRIES):
                    if made.dead or task.done:
                        break
                    if not made:  # never begun
                        task.done = True
                        break
                    made.throw(Killed)
                else:
                    left += 1
                    _undead.append(made)
        self.current = None
        self._ready.clear()
        self._due.clear()
        return left

    def stacks(self) -> str:
        """The stack of every task that has not ended."""
        told = []
        for process in self.processes:
            for task in process.tasks:
                if task.done or not process.alive:
                    continue
                frame = task.greenlet.gr_frame
                lines = traceback.format_stack(frame)[-12:] if frame is not None else ["  ready\n"]
                told.append(f"-- {process.name}/{task.name}\n{''.join(lines)}")
        return "".join(told)


_undead: list[greenlet] = []
"""Tasks that outlive their life, kept so that nothing is ever thrown into them again."""
