"""Errors on their way between processes: from a Spark task to the driver, from spark-submit to who called it."""

from __future__ import annotations

import json
import re

from partitioning.errors import Conflict, CosetError, Finding, OutcomeUnknown, Refused, Unreachable

_KINDS: dict[int, type[CosetError]] = {
    kind.exit_code: kind for kind in (CosetError, Refused, Conflict, OutcomeUnknown, Unreachable)
}
_HEADER = "Coset stopped, "
_FINDING = re.compile(r"(?P<what>.+?)\n  where: (?P<where>.+?)\n  next:  (?P<then>[^\n]+)(?:\n|$)", re.DOTALL)


def to_json(error: CosetError) -> str:
    """An error as text that `from_json` reads back."""
    findings = [(finding.what, finding.where, finding.then) for finding in error.findings]
    return json.dumps({"exit_code": error.exit_code, "findings": findings})


def from_json(text: str) -> CosetError:
    """The error that `to_json` wrote."""
    plain = json.loads(text)
    return _KINDS[plain["exit_code"]](*(Finding(*finding) for finding in plain["findings"]))


def to_text(error: CosetError) -> str:
    """An error for people, on stderr; `from_text` finds it among other output."""
    return f"{_HEADER}{type(error).__name__}:\n{error}"


def from_text(text: str, exit_code: int) -> CosetError | None:
    """The error in a program's stderr, None if there is none."""
    _, header, after = text.rpartition(_HEADER)
    findings = [Finding(*match.groups()) for match in _FINDING.finditer(after.partition("\n")[2])]
    return _KINDS.get(exit_code, CosetError)(*findings) if header and findings else None
