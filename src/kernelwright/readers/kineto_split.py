"""Any JSON text with a list of trace events -> the events' texts, some at a time, and the text around them.

Memory does not grow with the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("?)|[{}\[\]]', re.DOTALL)
_FIRST = re.compile(rb"[ \t\r\n]*\Z")
_NEXT = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*\Z")
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*\Z")
_TO_BRACKET = re.compile(rb"[ \t\r\n]*:?[ \t\r\n]*\Z")
_KEY = b'"traceEvents"'
_BATCH_BYTES = 1 << 20
MAX_PART_BYTES = 16 << 20
"""Of one event, and of all that is not an event."""


class Malformed(Exception):
    """The text is not JSON with a list of objects."""


class Splitter:
    """One pass over a text: iterate over batches(), then take `around`."""

    def __init__(self) -> None:
        self.around = b""
        """The document without its events, as JSON text."""
        self._text = b""
        self._depth = 0
        self._events_depth = -1
        """Depth inside the list of events; -1 outside of it."""
        self._begin = -1
        """Where the event that is being read begins; -1 between events."""
        self._done = 0
        """What lies before this is dealt with."""
        self._key_end = -1
        self._seen = False
        self._scanned = 0

    def batches(self, chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
        """The texts of the events, in the file's order. Raises Malformed, and whatever chunks raises."""
        at, batch, size = 0, [], 0
        for chunk in chunks:
            kept = self._drop_done()
            self._text += chunk
            at = max(0, at - kept)
            for element in self._scan(at):
                batch.append(element)
                size += len(element)
                if size >= _BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
            at = self._scanned
            if len(self._text) - self._done > MAX_PART_BYTES:
                raise Malformed("one value is larger than 16 MiB")
        if self._events_depth >= 0:
            raise Malformed("the text ends within its events")
        self._add_around(len(self._text))
        if batch:
            yield batch

    def _drop_done(self) -> int:
        """Forget what is dealt with; its length."""
        dropped = self._done
        self._text = self._text[dropped:]
        self._begin -= dropped if self._begin >= 0 else 0
        self._key_end -= dropped
        self._done = 0
        return dropped

    def _scan(self, at: int) -> Iterator[bytes]:
        self._scanned = len(self._text)
        for token in _TOKEN.finditer(self._text, at):
            start, end = token.span()
            first = self._text[start]
            if first == 0x22:
                if not token[1]:  # goes on in the next chunk
                    self._scanned = start
                    break
                if self._events_depth < 0 and self._depth == 1 and token[0] == _KEY:
                    self._key_end = end
            elif first in b"{[":
                self._opens(start, end)
            elif (element := self._closes(start, end)) is not None:
                yield element
        if self._events_depth < 0:
            waiting = self._key_end >= 0 and _TO_BRACKET.match(self._text, self._key_end, self._scanned) is not None
            self._add_around(self._key_end if waiting else self._scanned)

    def _opens(self, start: int, end: int) -> None:
        if self._events_depth >= 0 and self._depth == self._events_depth:
            self._check_between(start, _NEXT if self._seen else _FIRST)
            self._begin = start
        elif self._events_depth < 0 and self._text[start] == 0x5B and self._is_list(start):
            self._add_around(end)
            self._events_depth, self._seen = self._depth + 1, False
        self._depth += 1

    def _is_list(self, start: int) -> bool:
        """True for the bracket that opens the list of events: the key's, or the document's own."""
        if self._depth == 0:
            return True
        return self._depth == 1 and self._key_end >= 0 and _COLON.match(self._text, self._key_end, start) is not None

    def _closes(self, start: int, end: int) -> bytes | None:
        self._depth -= 1
        if self._events_depth < 0:
            return None
        if self._depth == self._events_depth:
            element = self._text[self._begin:end]
            self._begin, self._done, self._seen = -1, end, True
            return element
        if self._depth < self._events_depth:
            self._check_between(start, _FIRST)
            self._events_depth, self._done = -1, start
        return None

    def _check_between(self, start: int, expected: re.Pattern[bytes]) -> None:
        if expected.match(self._text, self._done, start) is None:
            raise Malformed("something other than an object is among the events")
        self._done = start

    def _add_around(self, until: int) -> None:
        if until > self._done:
            self.around += self._text[self._done:until]
            self._done = until
        if len(self.around) > MAX_PART_BYTES:
            raise Malformed("more than 16 MiB lies around the events")
