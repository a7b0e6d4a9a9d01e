"""Drives a career through its terms.

The *career thread* calls the user's code: ``prepare``, for each term won its stages
(:mod:`leaderq.running.stages`), ``retire``. The *supervisor* is the thread that called
:meth:`Runner.run`, or :func:`supervise` for several: it ends the term when it is told to, and
watches the budgets, because the career thread may hang in the user's code. A term is released only
when the user's code has returned, because the next leader must not start while the code of this one
runs. On each failure:

* if a stage raises, the term ends as *failed*; ``handOver`` follows, then a cool-off;
* if the leader is deposed, ``handOver`` follows at once; if the code does not return within T/6
  (T: session time-out), the process exits, because another candidate may lead;
* if ``inaugurate`` overruns its budget, the term ends with the reason *budget*;
* if after a planned end the code does not return within ``handover_budget_s``, the process exits;
* the same if the runner is told to stop, and ``prepare`` or ``retire`` does not return;
* without ``leave`` (a runner inside somebody's own program) the process never exits: the leadership
  is kept until the code returns;
* if the guardian dies, the worker hands over and exits.

The first signal ends the term in order, the second exits. Signal handlers interrupt the main thread
anywhere, so they take no locks and start no long work.
"""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from leaderq.base import clock, host
from leaderq.base.exits import ExitCode
from leaderq.career import Career, ILeaderCareer, career_name, check_career
from leaderq.config import Settings
from leaderq.election import Candidate, EndDetails
from leaderq.election.layout import Layout
from leaderq.errors import CareerFailed, LeaderqError, told
from leaderq.events import BudgetMissed, CoolingOff, EventBus, Stage
from leaderq.observability import tracing
from leaderq.observability.health import RunnerState
from leaderq.running.descendants import StartedInTerm
from leaderq.running.guardian import SAME_REQUEST_S
from leaderq.running.guardian_link import GuardianLink
from leaderq.running.installed import software_of
from leaderq.running.stages import StageRunner, called_here
from leaderq.running.supervision import (
    Allowance,
    Budgets,
    CoolOff,
    after_term,
    watch_health,
)
from leaderq.schedules.timetable import timetable_of
from leaderq.term import OpenTerm, Reason
from leaderq.threads import Retry, Waker, primitives
from leaderq.threads.stacks import stack_of
from leaderq.threads.waker import bounded_s
from leaderq.zookeeper import AnyClient, as_session

log = logging.getLogger(__name__)

_RELEASE_S = 5.0
# While stopping, an unreachable ZooKeeper is not worth a wait: the session ends without us, too.
_RELEASE_WHILE_STOPPING_S = 2.0


class Runner:
    """Runs ``career`` in this process until :meth:`stop`.

    ``session`` is a :class:`~leaderq.zookeeper.Session` or a started ``KazooClient``; the caller
    must close it. Events are logged as ``leaderq.events``. ``leave(exit_code)`` is called to end
    the process when nothing else can stop the user's code; with ``None`` the runner waits for that
    code instead.
    """

    def __init__(
        self,
        career: ILeaderCareer,
        session: AnyClient,
        *,
        settings: Settings | None = None,
        events: EventBus | None = None,
        guardian: GuardianLink | None = None,
        leave: Callable[[int], None] | None = None,
    ) -> None:
        check_career(type(career))
        self.settings = settings or Settings()
        self.events = events or EventBus()
        self.career_name = self.settings.career or career_name(career)
        self.candidate_id = self.settings.id
        if self.settings.tracing:
            tracing.start()
        tracing.follow(self.events, self.career_name, self.candidate_id)
        self._career = career
        self._pid = host.pid()
        self._session = as_session(session)
        self._candidate = Candidate(
            self._session,
            self.career_name,
            id=self.candidate_id,
            root=self.settings.root,
            events=self.events,
            ending=self._term_ending,
            software=software_of(career),
            prefers_newest=self.settings.prefer == "newest",
        )
        layout = Layout(self.settings.root, self.career_name)
        self._timetable = timetable_of(
            career,
            self._session,
            layout.schedules,
            layout.shared,
            name=self.career_name,
            candidate=self.candidate_id,
            events=self.events,
        )
        self._guardian = guardian
        self._leave = leave
        self._thread: primitives.Thread | None = None
        self._waker = Waker()
        self._budgets = Budgets(self._wake)
        self._stages: StageRunner | None = None
        self._term: OpenTerm | None = None
        self._stopping = primitives.Event()
        self._stops_because = Reason.WITHDRAWN
        self._winds_up = False  # the supervisor has told the candidate
        self._ended = False
        self._units = 0  # of former terms
        self.looks_every_s = math.inf
        """The longest wait of its supervisor, in seconds; see :func:`handling`."""
        self.failure: LeaderqError | None = None
        """Why it has ended, if it was not told to; ``None`` until then."""
        self._cool_off_policy = Retry(
            attempts=self.settings.max_failures,
            first_s=self.settings.cool_off_s,
            most_s=self.settings.yield_s,
        )

    # ---- the supervisor's thread ----------------------------------------------------------------

    def run(self) -> ExitCode:
        """Stand, lead and stand again until :meth:`stop`, or until the career has finished.

        Raises :class:`CareerFailed`, or the ``LeaderqError`` itself, when ``prepare`` or ``retire``
        raised, or the career failed in the term in which it finished; :class:`SessionClosed` when
        the session is closed, or belongs to the process from which this one was forked.
        """
        for _ended in supervise([self]):
            pass
        if self.failure is not None:
            raise self.failure
        return ExitCode.OK

    def start(self, waker: Waker) -> None:
        """Start the career's thread. ``waker`` is woken when :meth:`look_after` must be called. For
        the supervisor.
        """
        self._session.check_open()
        self._waker = waker
        if self._guardian is not None:
            self._guardian.attach(
                self._session,
                self.events,
                career=self.career_name,
                candidate=self.candidate_id,
                lost=self._guardian_lost,
            )
        self._thread = primitives.Thread(
            target=self._live, name=f"leaderq-career-{self.career_name}", daemon=True
        )
        self._thread.start()

    def look_after(self) -> float | None:
        """Do what is due; return for how many seconds nothing will be due, ``None`` if the runner
        has ended. For the supervisor.
        """
        if self._ended:
            assert self._thread is not None  # it has set that
            self._thread.join()
            return None
        if self._stopping.is_set() and not self._winds_up:
            self._winds_up = True
            self._wind_up()
        if (missed := self._budgets.missed()) is not None:
            self._budget_missed(missed)
        return min(self.looks_every_s, max(0.0, self._budgets.until_s - clock.now_s()))

    def stop(self) -> None:
        """Hand over if this process leads, leave the line, and let :meth:`run` return. Signal
        handlers may call it.
        """
        self._stopping.set()
        self._wake()

    def _guardian_lost(self) -> None:
        self._stops_because = Reason.UNGUARDED
        self.stop()

    def give_up(self) -> None:
        """Exit at once, without handing over; the guardian lets the next leader in."""
        if self._leave is not None:
            self._leave(ExitCode.FORCED)

    def look(self) -> RunnerState:
        """Return the runner's state now. Never waits; any thread may call it."""
        stages = self._stages
        return RunnerState(
            career=self.career_name,
            candidate=self.candidate_id,
            session=self._session.state.name.lower(),
            timeout_s=self._session.timeout_s,
            role=self._candidate.role.name.lower(),
            silent_s=self._candidate.silent_s(),
            stopping=self._stopping.is_set(),
            ended=self._ended,
            units=self._units if stages is None else stages.units,
            term=None if stages is None else stages.look(),
        )

    def _wake(self) -> None:
        self._waker.wake()

    def _wind_up(self) -> None:
        term = self._term
        self._candidate.step_down(self._stops_because)
        self._candidate.wake()
        if term is None:
            self._budgets.allow(None, None, self.settings.handover_budget_s)
        elif self._leave is not None:
            log.info(
                "stopping, work in hand is finished within the budget, a second signal ends it at"
                " once career=%s id=%s term=%d budget_s=%g",
                self.career_name,
                self.candidate_id,
                term.number,
                self.settings.handover_budget_s,
            )

    def _budget_missed(self, missed: Allowance) -> None:
        term, stage = missed.term, missed.stage
        who = self.career_name, self.candidate_id
        if term is None or stage is None:
            assert self._thread is not None  # it does not end
            log.error(
                "prepare or retire takes longer than the hand-over budget career=%s id=%s"
                " budget_s=%g stack=%s",
                *(*who, missed.budget_s, stack_of(self._thread.ident)),
            )
        else:
            self.events.publish(BudgetMissed(*who, term.number, stage, missed.budget_s))
            if stage != Stage.HANDOVER:
                self._candidate.step_down(Reason.BUDGET, term=term)
                return
        if self._leave is not None:
            self._leave(ExitCode.HANDOVER_MISSED)

    def _term_ending(self, term: OpenTerm) -> None:
        """Time the hand-over, and abandon the unit if it is atomic. Runs on the candidate's
        thread.
        """
        stages = self._stages
        if stages is not None and term is self._term:
            self._time_hand_over(term)
            if term.reason not in (Reason.RESIGNED, Reason.FINISHED):  # by the unit itself
                stages.abandon()

    def _time_hand_over(self, term: OpenTerm) -> None:
        deposed = term.reason is not None and term.reason.deposes
        budget_s = self.settings.handover_budget_s
        self._budgets.allow(
            term,
            Stage.HANDOVER,
            min(budget_s, self._session.shares.handover_s) if deposed else budget_s,
        )

    # ---- the career thread ----------------------------------------------------------------------

    def _live(self) -> None:
        try:
            self._guarded("prepare", self._prepare)
            self._serve_terms()
        except LeaderqError as exc:
            self.failure = exc  # raised by the supervisor, where the caller sees it
        except BaseException as exc:  # noqa: BLE001  (a fault of ours; likewise)
            self.failure = CareerFailed(self.career_name, "the runner", exc)
            self.failure.__cause__ = exc
        finally:
            try:
                self._candidate.close(timeout_s=_RELEASE_WHILE_STOPPING_S)
                self._retire()
            finally:
                self._ended = True
                self._wake()

    def _prepare(self) -> None:
        if isinstance(self._career, Career):
            self._career.session = self._session
            self._career._take(self.settings)
            self._career.events = self.events
            self._career.candidate_id = self.candidate_id
            self._career._perform(self._career.prepare)

    def _retire(self) -> None:
        career = self._career
        if not isinstance(career, Career):
            return
        if self._stopping.is_set():  # else the supervisor does this when it is told to stop
            self._budgets.allow(None, None, self.settings.handover_budget_s)
        try:
            self._guarded("retire", lambda: career._perform(career.retire))
        except LeaderqError as exc:
            self.failure = self.failure or exc
        finally:
            career._close()

    def _guarded(self, stage: str, code: Callable[[], None]) -> None:
        try:
            called_here(code, self._pid)
        except LeaderqError:
            raise
        except BaseException as exc:  # no error of any kind may end this thread silently
            raise CareerFailed(self.career_name, stage, exc) from exc

    def _serve_terms(self) -> None:
        record = CoolOff()
        while not self._stopping.is_set():
            self._candidate.stand()
            term = self._candidate.await_term()
            if term is None:
                continue
            try:
                record = self._serve(term, record)
            except BaseException:  # a fault of ours, or the system has no thread left
                self._candidate.conclude(term, Reason.FAILED)
                raise
            if term.is_finished or not self._stands_again():
                return
            self._cool_off(record)

    def _stands_again(self) -> bool:
        return not isinstance(self._career, Career) or self._career._stands_again

    def _cool_off(self, record: CoolOff) -> None:
        if self._stopping.is_set():
            return
        if record.why:
            who = self.career_name, self.candidate_id
            self.events.publish(CoolingOff(*who, record.seconds, record.failures, record.why))
        self._stopping.wait(bounded_s(record.seconds))

    def _serve(self, term: OpenTerm, record: CoolOff) -> CoolOff:
        """Serve ``term`` and release it; return the cool-off record after it."""
        began_s = clock.now_s()
        started = None
        if self._guardian is not None:
            self._guardian.watch_term(term, self.settings.handover_budget_s)
            # Of several careers nobody can tell which of them has started a process.
            started = None if self._guardian.is_shared else StartedInTerm(self._guardian.pid)
        strict_s = self._session.shares.strict_s if self.settings.strict else 0.0
        stages = StageRunner(
            self._career,
            term,
            budgets=self._budgets,
            inaugurate_budget_s=self.settings.inaugurate_budget_s,
            settle_s=max(self.settings.settle_s, strict_s),
            events=self.events,
            tell_stage=lambda stage: self._tell_stage(term, stage),
            step_down=lambda: self._candidate.step_down(Reason.FAILED, term=term),
            is_heard_out=lambda: self._session.is_heard_out,
            timetable=self._timetable,
        )
        stages.units = self._units
        self._budgets.open_term(term)
        self._term, self._stages = term, stages
        if self._stopping.is_set():  # told to stop between winning and here
            self._candidate.step_down(self._stops_because, term=term)
        if term.ending.is_set():  # ended between winning and here: nobody was told
            self._time_hand_over(term)
        watch_health(
            self._career,
            term,
            interval_s=self._session.shares.answer_s,
            unhealthy=lambda: self._candidate.step_down(Reason.HEALTH, term=term),
        )
        error = stages.serve()
        self._budgets.close_term()
        if started is not None:
            self._end_started(started, term)
        if self._guardian is not None:
            self._guardian.forget_term(term)
        timeout_s = _RELEASE_WHILE_STOPPING_S if self._stopping.is_set() else _RELEASE_S
        reason = Reason.FAILED if error else term.reason or self._stops_because
        asked_s, policy = term.stand_again_after_s, self._cool_off_policy
        after = after_term(
            record, reason, clock.now_s() - began_s, policy, stand_again_after_s=asked_s
        )
        waits = self._stands_again() and not term.is_finished and not self._stopping.is_set()
        raised = told(error.__cause__ or error) if error else None
        details = EndDetails(raised, after.seconds if waits else 0.0)
        self._candidate.conclude(term, reason, timeout_s=timeout_s, details=details)
        self._units = stages.units
        self._stages = self._term = None
        if term.is_finished:
            self.failure = error
        if not error and term.reason is not None and term.reason is not reason:  # deposed by now
            after = after_term(record, term.reason, clock.now_s() - began_s, policy)
        return after

    def _end_started(self, started: StartedInTerm, term: OpenTerm) -> None:
        who = self.career_name, term.number
        try:
            killed = started.kill_left()
        except OSError as exc:
            log.error(  # noqa: TRY400  (a sentence for operators)
                "what outlived handOver cannot be looked for, so it is ended with this process"
                " career=%s term=%d error=%s",
                *(*who, exc),
            )
            if self._leave is not None:
                self._leave(ExitCode.FAILED)
            return
        if killed:
            pids = ",".join(str(one.pid) for one in sorted(killed))
            log.warning("killed what outlived handOver career=%s term=%d pids=%s", *(*who, pids))

    def _tell_stage(self, term: OpenTerm, stage: Stage) -> None:
        if stage is Stage.HANDOVER and self._guardian is not None:
            self._guardian.report(handing_over=term)
        self._candidate.announce(term, stage)


def supervise(runners: Sequence[Runner]) -> Iterator[Runner]:
    """Run ``runners``: this thread supervises them, and their careers run on threads of their own.
    Yields each runner that has ended. If one cannot start, stops those before it and raises.
    """
    waker = Waker()
    running: list[Runner] = []
    try:
        for each in runners:
            each.start(waker)
            running.append(each)
    except BaseException:
        for each in running:
            each.stop()
        raise
    while running:
        left_s = math.inf
        for each in list(running):
            if (nothing_s := each.look_after()) is None:
                running.remove(each)
                yield each
            else:
                left_s = min(left_s, nothing_s)
        if running:
            waker.wait(None if left_s == math.inf else left_s)


_ASKING = (signal.SIGTERM, signal.SIGINT)
_HEARS_S = 1.0


@contextmanager
def handling(*runners: Runner) -> Iterator[None]:
    """Within the block SIGTERM, SIGINT and SIGHUP stop the runners. Only the main thread may use
    it, and it must supervise them. It looks once a second, because a signal that comes just before
    its wait does not end that wait, and Python calls the handler only after the wait.

    A SIGHUP that was ignored before stays ignored (``nohup``). A second signal within
    ``SAME_REQUEST_S`` of the first is the same request.
    """
    asked_s: float | None = None

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked_s
        if asked_s is None:
            asked_s = clock.now_s()
            for runner in runners:
                runner.stop()
        elif clock.now_s() - asked_s > SAME_REQUEST_S:
            runners[0].give_up()  # the whole process

    for runner in runners:
        runner.looks_every_s = _HEARS_S
    hung_up = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
    before = {number: signal.signal(number, handle) for number in (*_ASKING, *hung_up)}
    try:
        yield
    finally:
        for number, handler in before.items():
            # else it was replaced within the block, for good
            if signal.getsignal(number) is handle:
                signal.signal(number, handler)
