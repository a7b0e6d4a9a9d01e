"""Requests from the lines of a file, which may hold anything: what cannot be used is counted, and the first of it shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

from leaderq.coalescing.analysing.formats import BadLine, Format

LONGEST_LINE_BYTES = 1 << 20
SHOWN = 3


class RequestLines:
    """The requests of ``stream``. ``format_of(first_line)`` gives the format, once the first line that is text and not
    empty is known.

    ``lines`` counts the lines read, but for empty ones; ``requests`` those that were requests; ``undecodable`` those that
    are no UTF-8; ``unusable`` those that are not as the format says, or longer than 1 MiB. ``complaints`` holds the first
    few, with their numbers.
    """

    def __init__(self, stream: BinaryIO, format_of: Callable[[str], Format]) -> None:
        self._stream = stream
        self._format_of = format_of
        self.format: Format | None = None
        self.lines = 0
        self.requests = 0
        self.undecodable = 0
        self.unusable = 0
        self.complaints: list[str] = []
        self._number = 0

    def prepare(self) -> Iterator[tuple[str, float | None]]:
        """The requests, with the format known already: the first line was read, if there is one.

        :raises ConfigurationError: the format lacks the field.
        """
        texts = self._texts()
        first = next(texts, None)
        if first is None:
            return iter(())
        self.format = self._format_of(first)
        return self._requests(first, texts, self.format)

    def _requests(self, first: str, texts: Iterator[str], form: Format) -> Iterator[tuple[str, float | None]]:
        text: str | None = first
        while text is not None:
            try:
                request = form.request(text)
                if request is not None:
                    self.requests += 1
                    yield request
            except BadLine as exc:
                self.unusable += 1
                self._complain(str(exc))
            text = next(texts, None)

    def _texts(self) -> Iterator[str]:
        while raw := self._stream.readline(LONGEST_LINE_BYTES):
            self._number += 1
            if not raw.endswith(b"\n") and len(raw) == LONGEST_LINE_BYTES:
                self._skip_rest()
                continue
            text = self._decoded(raw)
            if text:
                self.lines += 1
                yield text

    def _decoded(self, raw: bytes) -> str | None:
        try:
            return raw.decode("utf-8-sig" if self._number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as exc:
            self.lines += 1
            self.undecodable += 1
            self._complain(f"no UTF-8 at byte {exc.start + 1}")
            return None

    def _skip_rest(self) -> None:
        self.lines += 1
        self.unusable += 1
        self._complain(f"longer than {LONGEST_LINE_BYTES} bytes")
        while (rest := self._stream.readline(LONGEST_LINE_BYTES)) and not rest.endswith(b"\n"):
            continue

    def _complain(self, what: str) -> None:
        if len(self.complaints) < SHOWN:
            self.complaints.append(f"line {self._number}: {what}")
