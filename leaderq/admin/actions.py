"""The actions that the page and ``leaderq top`` offer. They call the same operators as the command
line, and pass on the user's name and reason, which a career's history keeps. A queue has no
history: what was done to it is a line of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import islice
from urllib.parse import urlencode

from leaderq.admin.dyno_queues import DynoAdmin, is_dyno
from leaderq.admin.snapshot import PageSnapshot
from leaderq.admin.text import harmless
from leaderq.election import Operator, View
from leaderq.election.layout import Layout
from leaderq.errors import ConfigurationError
from leaderq.queues.admin import QueueAdmin
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.schedules.operating import ScheduleOperator
from leaderq.zookeeper import Session

log = logging.getLogger(__name__)
_MOST_REDRIVEN = 1000
_TIMEOUT_S = 20.0


class Deed(Enum):
    """The actions of an operator. Each value has three parts: its word in addresses, the text of
    its button, and the words after "You want to". ``{0}`` stands for the subject, ``{1}`` for the
    detail.
    """

    PAUSE = "pause", "Pause", "pause {0}, so that its leader begins no new work"
    RESUME = "resume", "Resume", "resume {0}"
    STEP_DOWN = "step-down", "Step down", "let the leader of {0} step down, and the next one lead"
    TRANSFER = "transfer", "Transfer to {1}", "transfer {0} to {1}"
    RUN_NOW = "run-now", "Run now", "run schedule {1} of {0} once more, now"
    REDRIVE = "redrive", "Send back", "send dead letter {1} back to {0}"
    REDRIVE_ALL = "redrive-all", "Send all back", "send the dead letters of {0} back, 1,000 at most"

    @property
    def is_about_queue(self) -> bool:
        """Whether the subject is a queue; if not, it is a career."""
        return self in (Deed.REDRIVE, Deed.REDRIVE_ALL)


@dataclass(frozen=True)
class Action:
    """A deed and what it is done to. ``subject`` is the name of a career or the path of a queue;
    ``detail`` is the candidate, the schedule or the dead letter, where the deed needs one.
    """

    deed: Deed
    subject: str
    detail: str = ""

    @property
    def address(self) -> str:
        """The address of its form, relative to any other address of the page."""
        asked = {"do": self.deed.value[0], "of": self.subject, "with": self.detail}
        return f"./act?{urlencode(asked)}"

    @property
    def label(self) -> str:
        """The text of the action's button."""
        label: str = self.deed.value[1]
        return label.format(self.subject, self.detail)

    @property
    def sentence(self) -> str:
        """The words after "You want to", for this action."""
        sentence: str = self.deed.value[2]
        return sentence.format(self.subject, self.detail)

    def problem(self, snapshot: PageSnapshot) -> str | None:
        """Why the action cannot be done, as far as ``snapshot`` tells; ``None``: it may be
        tried.
        """
        if "{1}" in self.deed.value[2] and not self.detail:
            return "it is not said with what"
        if self.deed.is_about_queue:
            return None if snapshot.queue(self.subject) else "there is no such queue"
        state = snapshot.career(self.subject)
        if state is None:
            return "nobody has ever stood for that career"
        if self.deed is Deed.RUN_NOW and self.detail not in [one.name for one in state.schedules]:
            return "there is no such schedule"
        return None


def carry_out(session: Session, root: str, action: Action, by: str, why: str) -> str:
    """Do ``action``, and return a sentence that tells what happened. May wait for some 20 s.

    :raises LeaderqError: the action was refused, or not done in time; the text says what holds now.
    """
    values = by, action.deed.value[0], action.subject, action.detail, why
    log.warning("operator acts by=%s do=%s of=%s with=%s why=%s", *map(harmless, values))
    if action.deed.is_about_queue:
        return _redrive(session, action)
    operator = Operator(session, action.subject, root=root, by=by, why=why)
    if action.deed is Deed.RUN_NOW:
        folder = Layout(root, action.subject).schedules
        ScheduleOperator(session, folder).run_now(action.detail)
        operator.note(f"run-now {action.detail}")
        return f"{action.detail} runs once more; its history shows what becomes of it"
    asked: dict[Deed, Callable[[], View]] = {
        Deed.PAUSE: operator.pause,
        Deed.RESUME: operator.resume,
        Deed.STEP_DOWN: partial(operator.step_down, timeout_s=_TIMEOUT_S),
        Deed.TRANSFER: partial(operator.transfer, action.detail, timeout_s=_TIMEOUT_S),
    }
    view = asked[action.deed]()
    paused = ", paused" if view.paused else ""
    return f"{view.leader or 'nobody'} leads {view.career}, term {view.term}{paused}"


def _redrive(session: Session, action: Action) -> str:
    wanted = [action.detail] if action.detail else None
    with ExitStack() as stack:
        admin: DynoAdmin | QueueAdmin = QueueAdmin(session, QueuePaths(action.subject))
        if is_dyno(session, action.subject):
            admin = stack.enter_context(closing(DynoAdmin(session, action.subject)))
        letters = islice(admin.dead_letters.browse(wanted), _MOST_REDRIVEN)
        done = admin.dead_letters.requeue(letters)
    if action.detail and not done.moved:
        why = "stays: its id is another message's, or it has children"
        why = why if done.left else "is not there any more"
        raise ConfigurationError(f"dead letter {action.detail} {why}")
    gone = f"; {done.gone} were gone already" if done.gone else ""
    left = f"; {done.left} stay, whose ids are those of other messages" if done.left else ""
    return f"{done.moved} sent back to {action.subject}{gone}{left}"
