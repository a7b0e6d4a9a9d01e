"""How deep a queue is: by the servers, and as a consumer sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leaderq.dyno.nodes import QueueNodes
from leaderq.dyno.shard_view import ShardView


@dataclass(frozen=True, slots=True)
class ShardFigures:
    """``due``: may be delivered now; ``delayed``: later; ``leased``: in flight; ``oldest_due_s``:
    how long the oldest of those due has been so."""

    due: int
    delayed: int
    leased: int
    dead: int
    oldest_due_s: float | None


def shard_sizes(nodes: QueueNodes) -> dict[str, dict[str, int]]:
    """For each shard, by the servers: ``messages`` (all), ``resting``, ``leased``, ``dead``."""
    out = {}
    for shard in nodes.shards():
        paths = nodes.paths.shard(shard)
        stats = [nodes.session.exists(parent) for parent in paths.parents]
        counts = [0 if one is None else one.num_children for one in stats]
        messages, claims, rests, dead = counts
        leased = max(0, claims - rests)
        out[shard] = {"messages": messages, "resting": rests, "leased": leased, "dead": dead}
    return out


def shard_figures(
    nodes: QueueNodes, view_of: Callable[[str], ShardView]
) -> dict[str, ShardFigures]:
    """For each shard, as this consumer sees it."""
    out = {}
    for shard, sizes in shard_sizes(nodes).items():
        view, now_ms = view_of(shard), nodes.now_ms()
        view.refresh()
        with view.lock:
            times_ms = view.index.due_times_ms(now_ms)
        due, leased = len(times_ms), sizes["leased"]
        delayed = max(0, sizes["messages"] - due - leased)
        oldest_s = (now_ms - min(times_ms)) / 1000 if times_ms else None
        out[shard] = ShardFigures(due, delayed, leased, sizes["dead"], oldest_s)
    return out


def depths(shards: Mapping[str, ShardFigures]) -> dict[str, float]:
    """Those of the whole queue, by the names of its metrics."""
    every = shards.values()
    return {
        "ready": sum(one.due for one in every),
        "delayed": sum(one.delayed for one in every),
        "in_flight": sum(one.leased for one in every),
        "dead": sum(one.dead for one in every),
        "oldest_due_s": max((one.oldest_due_s or 0.0 for one in every), default=0.0),
    }
