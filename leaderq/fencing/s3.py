"""Fencing objects in S3, by its conditional put: what to send, from what ``head_object`` returned.

S3 compares nothing but an ETag, so the leader reads, compares, and puts on condition that the
object is still the one it has read (``If-Match``), or still not there (``If-None-Match``). The
token stands in the object's metadata. The store is authoritative: if somebody else puts in between,
the condition is false.

* 412: somebody has put, or created, the object since it was read. 409: somebody is doing so at this
  moment. 404, with ``If-Match``: somebody has deleted it. In all three cases nothing was written:
  read again, and decide again (:func:`read_again`). This is how a newer term is found.
* No answer: the put may have been done. Read again: the object tells.

**An object must name its term in its bytes.** An ETag is a digest of the bytes, without the
metadata. If a newer term writes the same bytes that an older one has read, the ETag is the same,
and the older one's condition still holds. Write the number into the object (a field of its JSON, a
comment in its first line), or make the object a small pointer: the term, and the key of the data.

Never delete an object that is fenced: nothing would be left to compare with. Write an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leaderq.base.arguments import instance, require, unless
from leaderq.errors import ConfigurationError
from leaderq.fencing.fencing_token import FencingToken, TermLike, judge, token_text

METADATA_KEY = "leaderq-term"


def conditional_put(
    term: TermLike,
    head: Mapping[str, Any] | None,
    *,
    metadata: Mapping[str, str] | None = None,
    where: str = "the object",
) -> dict[str, Any]:
    """The arguments of boto3's ``put_object`` that make a put fail unless the object is still as
    ``head`` says: ``IfMatch`` or ``IfNoneMatch``, and ``Metadata``.

    ``head`` is what ``head_object`` (or ``get_object``) returned, or ``None`` if there is no such
    object. ``metadata`` is your own; a put replaces all of it. ``where`` is named in errors. An
    object that has no token yet is taken over.

    Guarantees: of two terms that have both read an object, only one put is carried out, if the
    bytes of an object name its term. Not guaranteed: anything for puts without these arguments, and
    for stores that ignore the condition: let ``leaderq.testing.check_fencing`` try yours.

    :raises Deposed: the object was written in a newer term. The term is over from now on.
    :raises ConfigurationError: the object belongs to another career, its token cannot be read, or
      ``head`` has no ETag.
    """
    own = {METADATA_KEY: token_text(term)}
    yours = dict(metadata or {})
    taken = [name for name in yours if name.lower() == METADATA_KEY]
    require(unless(not taken, f"metadata has {taken}, which leaderq writes; leave it out"))
    if head is None:
        return {"IfNoneMatch": "*", "Metadata": {**yours, **own}}
    require(instance("head", head, Mapping))
    etag = head.get("ETag")
    if not isinstance(etag, str) or not etag:
        raise ConfigurationError(
            f"head has no ETag, but {sorted(head)}; give what head_object returned, or None if"
            " there is no such object"
        )
    judge(term, _stored(head.get("Metadata") or {}), where)
    return {"IfMatch": etag, "Metadata": {**yours, **own}}


def read_again(status: int) -> bool:
    """Whether this HTTP status of a conditional put says that another writer came in between.
    Nothing was written then: read the object again, and decide again whether to put.
    """
    return status in (404, 409, 412)


def _stored(metadata: Mapping[str, str]) -> FencingToken | None:
    # S3 returns names in lower case; others return them as they were written, or capitalised.
    found = [value for name, value in metadata.items() if name.lower() == METADATA_KEY]
    return FencingToken.read(found[0]) if found else None
