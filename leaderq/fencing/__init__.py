"""Fencing: a resource outside ZooKeeper refuses the writes of an older term.

The number of a term rises with each leader. A resource that remembers the highest number it has
seen, and refuses lower ones, cannot be changed by a deposed leader: not by one that was frozen, and
not by one whose host was paused with all its clocks. The comparison must be one step with the
write. This package does that for three kinds of store, and needs only your own connection:

* :class:`SqlFence` and :class:`FencedRows`: SQLite and PostgreSQL, by ``sqlite3``, ``psycopg`` or
  SQLAlchemy;
* :func:`term_header`, :func:`judge_header` and :func:`check_response`: a service that is called
  over HTTP;
* :func:`conditional_put` and :func:`read_again`: objects in S3, and in stores that copy its
  conditional put.

Each takes a term, or a :class:`FencingToken` where there is none. A refusal is
:class:`~leaderq.errors.Deposed`, and ends the term. ``docs/fencing.rst`` shows how to use them;
``leaderq.testing.check_fencing`` tries your own store.
"""

from __future__ import annotations

from leaderq.fencing.fencing_token import MAX_NUMBER, FencingToken, TermLike
from leaderq.fencing.http import (
    HEADER,
    Judgement,
    Ruling,
    check_response,
    judge_header,
    term_header,
)
from leaderq.fencing.s3 import METADATA_KEY, conditional_put, read_again
from leaderq.fencing.sql import FencedRows, ParamStyle, SqlFence, SqlStatement

__all__ = [
    "HEADER",
    "MAX_NUMBER",
    "METADATA_KEY",
    "FencedRows",
    "FencingToken",
    "Judgement",
    "ParamStyle",
    "Ruling",
    "SqlFence",
    "SqlStatement",
    "TermLike",
    "check_response",
    "conditional_put",
    "judge_header",
    "read_again",
    "term_header",
]
