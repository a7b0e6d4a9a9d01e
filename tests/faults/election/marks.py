"""Marks of the units of work that a process begins, in a file that is mapped into memory.

A mark costs no system call, so it lets no other thread of its process run, and a kill loses none.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

from leaderq.clock import now_s

_TERMS = 64
_MARK = struct.Struct("=dqd")


class Mark(NamedTuple):
    """One term: when it was inaugurated, how many units it began, and when the last one began."""

    inaugurated_s: float
    units: int
    last_s: float


class Marks:
    """The terms of one process; written by that process, read by others."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, _TERMS * _MARK.size)  # the same size each time: nothing is cut off
        self._map = mmap.mmap(descriptor, 0)
        os.close(descriptor)

    def __getitem__(self, term: int) -> Mark:
        return Mark(*_MARK.unpack_from(self._map, term * _MARK.size))

    def terms(self) -> dict[int, Mark]:
        """The terms inaugurated so far, by their numbers."""
        marks = {number: self[number] for number in range(_TERMS)}
        return {number: mark for number, mark in marks.items() if mark.inaugurated_s}

    def inaugurate(self, term: int) -> None:
        """``term`` begins now."""
        _MARK.pack_into(self._map, term * _MARK.size, now_s(), 0, 0.0)

    def begin_unit(self, term: int) -> None:
        """A unit of ``term`` begins now."""
        mark = self[term]
        _MARK.pack_into(self._map, term * _MARK.size, mark.inaugurated_s, mark.units + 1, now_s())
