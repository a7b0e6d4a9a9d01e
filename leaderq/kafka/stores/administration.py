"""What ``leaderq offsets`` needs to look at a career's offsets, and to set them."""

from __future__ import annotations

from dataclasses import dataclass

from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka import errors as native

from leaderq.base import clock
from leaderq.errors import KafkaError, RequestRefused
from leaderq.kafka.clients.consumer import Offsets
from leaderq.kafka.groups import describe_group, remove_static_members
from leaderq.kafka.record import Partition, epoch_of
from leaderq.kafka.topics import Access, opened, stored_offsets

_TRIES_S = 10.0
_AGAIN_S = 0.05


@dataclass(frozen=True)
class GroupOffsets:
    """The offsets of ``group``, in which the career's member is called ``member``; noted beside
    them: ``note``.
    """

    address: str
    group: str
    member: str
    access: Access
    note: str

    def stored(self) -> dict[Partition, int]:
        found = stored_offsets(self.address, self.group, **self.access)
        return {where: at for where, (at, _note) in found.items()}

    def put(self, offsets: Offsets) -> None:
        """Set them. The career's own member is removed from the group first, which fences it: a
        broker takes offsets from outside only while nobody is in the group. A paused leader joins
        again by itself, and reads on where the offsets are then.

        :raises RequestRefused: others are in the group, or the member is always there again.
        """
        until_s = clock.now_s() + _TRIES_S
        while True:
            view = describe_group(self.address, self.group, **self.access)
            if others := view.others(self.member):
                named = ", ".join(map(str, others[:5]))
                raise RequestRefused(
                    f"group {self.group!r} is used by {named}; stop these before its offsets are"
                    " set"
                )
            if view.members:
                remove_static_members(self.address, self.group, [self.member], **self.access)
            refused = self._try(offsets)
            if refused is None:
                return
            if clock.now_s() > until_s:
                raise RequestRefused(f"the offsets of group {self.group!r} are not set: {refused}")
            clock.sleep(_AGAIN_S)

    def _try(self, offsets: Offsets) -> str | None:
        """Why they are not set; ``None``: they are."""
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


@dataclass(frozen=True)
class OffsetAdmin:
    """Where the offsets of one career are. ``term`` is the znode of the newest term, and
    ``term_version`` its version (``None``: it is not there): it changes when somebody begins to
    lead. ``is_led``: somebody leads, who has paused.
    """

    group: GroupOffsets
    topics: tuple[str, ...]
    term: str
    term_version: int | None
    is_led: bool
