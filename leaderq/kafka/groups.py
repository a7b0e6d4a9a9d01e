"""A consumer group as its broker describes it: its members, the rule by which they share
partitions, and its offsets, which ``leaderq offsets`` sets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka import errors as native
from kafka.admin import MemberToRemove

from leaderq.base import clock
from leaderq.errors import KafkaError, RequestRefused, ZooKeeperError
from leaderq.kafka.clients.consumer import Offsets
from leaderq.kafka.record import Partition, epoch_of
from leaderq.kafka.topics import Access, opened, stored_offsets
from leaderq.zookeeper import Session

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger(__name__)

ASSIGNOR = "range"
"""The rule by which a career's members share partitions with others of their group."""
_NAMED = 5
_MARKED = " of leaderq "
_TRIES_S = 10.0
_AGAIN_S = 0.05


@dataclass(frozen=True)
class Deployment:
    """The careers below one ``root`` of one ensemble. ``id`` distinguishes deployments of the same
    root on other ensembles (``""``: not known, and no rival is found).

    Root and id are noted beside a group's offsets. (The client id would not do, because a broker
    keeps that of the first member of a name.)
    """

    root: str
    id: str = ""

    @classmethod
    def of(cls, session: Session, root: str) -> Deployment:
        """Return the deployment of ``root``; its id is taken from when that znode was made, which
        happens once in the life of a deployment.
        """
        try:
            stat = session.exists(root)
        except ZooKeeperError as exc:
            log.debug("deployment not known root=%s error=%s", root, exc)
            stat = None
        return cls(root) if stat is None else cls(root, f"{stat.czxid:x}.{stat.ctime_ms:x}")

    @property
    def mark(self) -> str:
        """What is noted."""
        return f"{_MARKED}{self.root}#{self.id}" if self.id else ""

    def rivals(self, notes: Iterable[str]) -> tuple[str, ...]:
        """Return the roots of other deployments that ``notes`` name."""
        if not self.id:
            return ()
        own, marks = f"{self.root}#{self.id}", {note.partition(_MARKED)[2] for note in notes}
        # No id begins with another one, and a note may have a letter too many (B27).
        others = {mark for mark in marks if mark and not mark.startswith(own)}
        return tuple(sorted({mark.rpartition("#")[0] for mark in others}))


def rivalry(roots: Sequence[str]) -> str:
    """Return a sentence that tells an operator that deployments of these other ``roots`` commit for
    the career's group, and what to do.
    """
    named = ", ".join(map(repr, roots))
    return (
        f"another leaderq deployment, root {named}, leads this group, or has led it; if it is still"
        " there, give one of the two careers another 'group' or 'name'"
    )


@dataclass(frozen=True)
class GroupMember:
    """One member of a group. ``name``: its ``group.instance.id``, under which the group keeps it
    for some time when it is gone; ``None``: it has none.
    """

    name: str | None
    client_id: str
    host: str

    def __str__(self) -> str:
        said = f"{self.client_id!r} at {self.host.lstrip('/')}"
        return said if self.name is None else f"{said} (member {self.name!r})"


@dataclass(frozen=True)
class GroupView:
    """A group at one moment. ``kind`` is ``"consumer"`` for consumers; ``assignor`` is the rule by
    which members share partitions, ``""`` while there are none.
    """

    name: str
    state: str
    kind: str
    assignor: str
    members: tuple[GroupMember, ...]

    def others(self, own: str) -> tuple[GroupMember, ...]:
        """Return all members except those called ``own``, the career's name."""
        return tuple(member for member in self.members if member.name != own)

    def sentence(self, own: str) -> str:
        """Return a sentence with the group's state, protocol and members, except ``own``."""
        rule = f", assignor {self.assignor!r}" if self.assignor else ""
        kind = "" if self.kind in ("", "consumer") else f", protocol {self.kind!r}"
        named = ", ".join(map(str, self.others(own)[:_NAMED])) or "no other member"
        more = len(self.others(own)) - _NAMED
        tail = f" and {more} more" if more > 0 else ""
        return f"group {self.name!r} is {self.state or 'unknown'}{kind}{rule}: {named}{tail}"

    def trouble(self, own: str) -> str | None:
        """Return why the career ``own`` cannot be in this group, and a remedy; ``None``: it can."""
        is_foreign = self.kind not in ("", "consumer") or self.assignor not in ("", ASSIGNOR)
        if not self.members or not is_foreign:
            return None
        return (
            f"{self.sentence(own)}; a career can share a group only with consumers whose assignor"
            f" is {ASSIGNOR!r}: stop those others, set partition.assignment.strategy there, or give"
            " the career a 'group' of its own"
        )


def describe_group(address: str, group: str, **access: Unpack[Access]) -> GroupView:
    """Return the group as it is now; a group that does not exist has no members."""
    with opened(KafkaAdminClient, address, "asking for members", **access) as admin:
        found: dict[str, Any] = admin.describe_groups([group])[group]
    members = tuple(
        GroupMember(
            member.get("group_instance_id") or None,
            str(member.get("client_id") or ""),
            str(member.get("client_host") or ""),
        )
        for member in found.get("members") or ()
    )
    keys = "group_state", "protocol_type", "protocol_data"
    state, kind, assignor = (str(found.get(key) or "") for key in keys)
    return GroupView(group, state, kind, assignor, members)


def remove_static_members(
    address: str, group: str, names: Iterable[str], **access: Unpack[Access]
) -> None:
    """Remove the members ``names``, so that ``group`` does not wait for them. One that lives joins
    again by itself, if it may.
    """
    gone = [MemberToRemove(group_instance_id=name) for name in names]
    with opened(KafkaAdminClient, address, "removing members", **access) as admin:
        admin.remove_group_members(group, gone)


@dataclass(frozen=True)
class OffsetAdmin:
    """Where the offsets of one career are, for ``leaderq offsets``; its methods read and set those
    of ``group``, in which the career's member is called ``member``. ``note`` is stored beside
    offsets that are set.

    ``term`` is the znode of the newest term, and ``term_version`` its version (``None``: it is not
    there): it changes when somebody begins to lead. ``is_led``: a leader exists, which has paused.
    """

    address: str
    group: str
    member: str
    access: Access
    note: str
    topics: tuple[str, ...]
    term: str
    term_version: int | None
    is_led: bool

    def stored(self) -> dict[Partition, int]:
        found = stored_offsets(self.address, self.group, **self.access)
        return {where: at for where, (at, _note) in found.items()}

    def require_settable(self) -> bool:
        """Whether somebody is in the group: it can only be the career's own member.

        :raises RequestRefused: others are.
        """
        view = describe_group(self.address, self.group, **self.access)
        if others := view.others(self.member):
            named = ", ".join(map(str, others[:5]))
            raise RequestRefused(
                f"group {self.group!r} is used by {named}; stop these before its offsets are set"
            )
        return bool(view.members)

    def put(self, offsets: Offsets) -> None:
        """Set the group's offsets. First the career's own member is removed from the group, which
        fences it: a broker takes offsets from outside only while nobody is in the group. A paused
        leader joins again by itself, and continues at the new offsets.

        :raises RequestRefused: others are in the group, or the member joins again each time.
        """
        until_s = clock.now_s() + _TRIES_S
        while True:
            if self.require_settable():
                remove_static_members(self.address, self.group, [self.member], **self.access)
            refused = self._try(offsets)
            if refused is None:
                return
            if clock.now_s() > until_s:
                raise RequestRefused(f"the offsets of group {self.group!r} are not set: {refused}")
            clock.sleep(_AGAIN_S)

    def _try(self, offsets: Offsets) -> str | None:
        """Set ``offsets`` once. Returns why the broker refused for now; ``None``: they are set."""
        wanted = {
            TopicPartition(*where): OffsetAndMetadata(at, self.note, epoch_of(at))
            for where, at in offsets.items()
        }
        with opened(KafkaAdminClient, self.address, "setting offsets", **self.access) as admin:
            answers = admin.alter_group_offsets(self.group, wanted)
        failed = {error for error in answers.values() if error is not native.NoError}
        passing = {
            native.UnknownMemberIdError,
            native.RebalanceInProgressError,
            native.IllegalGenerationError,
        }
        if failed - passing:
            names = ", ".join(sorted(each.__name__ for each in failed))
            raise KafkaError(f"setting the offsets of group {self.group!r}: {names}")
        return ", ".join(sorted(each.__name__ for each in failed)) or None
