"""The building blocks of background threads: services that start and stop, wakers, inboxes, limits
of capacity, back-off, listeners, executors.

No module of this package knows what it is used for, or imports anything above ``errors`` and
``clock``. Threads, locks, waits and futures come from ``leaderq.threads.primitives``.
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
