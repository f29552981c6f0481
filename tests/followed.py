"""Findings whose next step is followed: for each kind, the test that meets it and does what it says next."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

from partitioning.kinds import Kind
from tests import forked


@dataclass(frozen=True)
class Told:
    """The findings of one kind that a command failed with."""

    words: tuple[str, ...]
    findings: tuple[dict[str, Any], ...]

    @property
    def next(self) -> str:
        """What they say to do next."""
        return "\n".join(finding["next"] for finding in self.findings)

    @property
    def commands(self) -> list[tuple[str, ...]]:
        """The commands that they name, once each, ready to be run."""
        return commands(self.next)

    def follow(self, *more: str, which: int = 0) -> str:
        """Run one of the commands as it is written, with what a deployment would have set; it succeeds."""
        return done(*self.commands[which], *more)

    def again(self, *more: str) -> str:
        """Run the same command again, after what the words say was done; it succeeds."""
        return done(*self.words, *more)


def told(kind: Kind, *words: str, code: int = 3) -> Told:
    """Run a command that fails, and says so with findings of this kind."""
    result = forked.coset(*words, "--json")
    assert result.returncode == code, result
    findings = json.loads(result.stderr.splitlines()[-1])["findings"]
    found = tuple(finding for finding in findings if finding["kind"] == kind)
    assert found, findings
    return Told(words, found)


def done(*words: str) -> str:
    """Run a command that succeeds; what it prints."""
    result = forked.coset(*words)
    assert result.returncode == 0, result
    return result.stdout


def commands(text: str) -> list[tuple[str, ...]]:
    """The commands in a text, once each, ready to be run."""
    lines = dict.fromkeys(re.findall(r"`coset ([^`]+)`", text))
    assert lines, text
    return [tuple(word.replace("…", "it is asked for") for word in shlex.split(line)) for line in lines]
