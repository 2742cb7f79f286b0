"""Where a JSON Pointer leads in the text of a file: the line and the columns that people are shown."""

from __future__ import annotations

from contextlib import suppress

from tokaudit.findings import Region
from tokaudit.formats.json_edit import Member, scan, skip_blank


class JsonLines:
    """The text of a JSON file. Each object or list on the way to a pointer is scanned once.

    The file is read a second time for this, so the text may be anything by now: what cannot be found gives
    the region of the last member on the way that can.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._scanned: dict[int, dict[str, Member]] = {}

    def region(self, pointer: str) -> Region:
        """The first line of the member that an RFC 6901 pointer names, from its key on."""
        begin = start = skip_blank(self.text, 0)
        stop = len(self.text.rstrip())
        for step in pointer.split("/")[1:]:
            member = self._members(start).get(step.replace("~1", "/").replace("~0", "~"))
            if member is None:
                break
            begin, start, stop = member.begin, member.start, member.stop
        return self._region(begin, stop)

    def _members(self, start: int) -> dict[str, Member]:
        """Of a repeated key the last one, as loaders use."""
        if start not in self._scanned:
            self._scanned[start] = {}
            if self.text[start : start + 1] in ("{", "["):
                with suppress(ValueError, IndexError, RecursionError):
                    members = scan(self.text, start).members
                    self._scanned[start] = {str(member.key): member for member in members}
        return self._scanned[start]

    def _region(self, begin: int, stop: int) -> Region:
        line_begins = self.text.rfind("\n", 0, begin) + 1
        line_ends = self.text.find("\n", begin, stop)
        ends = stop if line_ends < 0 else line_ends
        return Region(
            line=self.text.count("\n", 0, begin) + 1,
            column=begin - line_begins + 1,
            end_column=max(begin, ends) - line_begins + 1,
        )
