"""Where a buffered producer sends to: the narrow :class:`Sink`, and the sinks that need no server
library."""

from leaderq.producing.sinks.queue_sink import QueueSink
from leaderq.producing.sinks.sink import ALL_CONFIRMED, BatchOutcome, CallableSink, Sink

__all__ = ["ALL_CONFIRMED", "BatchOutcome", "CallableSink", "QueueSink", "Sink"]
