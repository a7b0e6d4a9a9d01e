"""What is left over in a Dyno queue, by hand or by a program that is not this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from leaderq.dyno.ids import kept_until_ms
from leaderq.dyno.layout import ShardPaths, parsed_name, parsed_rest
from leaderq.dyno.nodes import QueueNodes
from leaderq.dyno.shard_view import children_of, read_claims
from leaderq.dyno.transitions import Operations, absence
from leaderq.errors import NoNode
from leaderq.zookeeper import Check, Delete, Session


@dataclass(frozen=True, slots=True)
class Leftover:
    """A znode, ``why`` it is of no use, and what deletes it if that still holds."""

    path: str
    why: str
    operations: Operations


def leftovers(nodes: QueueNodes, place: Callable[[str], object]) -> Iterator[Leftover]:
    """Claims and markers without a message, markers that are not those of their claims, and ids
    without a message; each looked at again, as what is in use changes meanwhile."""
    session, paths = nodes.session, nodes.paths
    for shard in nodes.shards:
        yield from _in_shard(session, paths.shard(shard))
    for part in children_of(session, paths.ids):
        path = f"{paths.ids}/{part}"
        try:
            data, stat = session.get(path)
        except NoNode:
            continue
        if kept_until_ms(data) is None and place(unquote(part)) is None:
            yield Leftover(path, "no message has this id", (Delete(path, stat.version),))


def _in_shard(session: Session, paths: ShardPaths) -> Iterator[Leftover]:
    claims, markers = children_of(session, paths.claims), children_of(session, paths.rests)
    messages = set(children_of(session, paths.messages))  # last: what is new in the others is in it
    for marker in markers:
        rest = parsed_rest(marker)
        if rest is None:
            continue
        path, claim_path = paths.rest(marker), paths.claim(rest.name)
        if rest.name not in claims:
            gone = (*absence(claim_path), Delete(path))
        else:
            read = read_claims(session, paths, [rest.name])
            if not read or read[0].resting == marker:
                continue
            gone = (Check(claim_path, read[0].version), Delete(path))
        if session.exists(path) is not None:
            yield Leftover(path, "a marker that is not of its claim", gone)
    for name in claims:
        if name not in messages and parsed_name(name) is not None:
            for claim in read_claims(session, paths, [name]):
                gone = (*absence(paths.message(name)), Delete(paths.claim(name), claim.version))
                yield Leftover(paths.claim(name), "a claim without a message", gone)
