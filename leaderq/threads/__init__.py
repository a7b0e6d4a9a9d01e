"""What background threads stand on: start, stop, wake, inboxes, room, back-off, listeners, work in
order.

Nothing in here knows what it is used for, or imports what is above ``errors`` and ``clock``.
Threads, locks, waits and futures themselves are taken from ``leaderq.threads.primitives``.
"""

from leaderq.threads.capacity import Capacity, Waiter, WaitingLine
from leaderq.threads.inbox import Inbox
from leaderq.threads.listeners import Listeners
from leaderq.threads.per_thread import PerThread
from leaderq.threads.retry import Backoff, Retry
from leaderq.threads.serial_executor import SerialExecutor, SubmittedWork
from leaderq.threads.service import Service
from leaderq.threads.waker import TaskWaker, Waker

__all__ = [
    "Backoff",
    "Capacity",
    "Inbox",
    "Listeners",
    "PerThread",
    "Retry",
    "SerialExecutor",
    "Service",
    "SubmittedWork",
    "TaskWaker",
    "Waiter",
    "WaitingLine",
    "Waker",
]
