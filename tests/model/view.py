"""A view of what is stored: the documents of a pipeline, and what readers of its tables see."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

from coset.batches.tables.log_copy import actions_in
from partitioning.documents.document import unpack
from partitioning.model.backfill import Swap, SwapKind, Swapped
from partitioning.model.plan import Plan
from partitioning.model.receipt import Receipt
from partitioning.model.verdict import Commit, Decision, Verdict
from tests.model.seams import PREFIX, decoded
from tests.model.server import Objects

_LOG = re.compile(rf"{PREFIX}tables/([^/]+)/_delta_log/[0-9]+\.json")
Offset = tuple[str, int]


class View:
    """What a pipeline's folder and its tables have, by the objects of the store alone."""

    def __init__(self, objects: Objects, pipeline: str) -> None:
        self.objects, self.pipeline = objects, pipeline

    @cached_property
    def plans(self) -> dict[int, Plan]:
        return dict(self._documents("plans", Plan))

    @cached_property
    def verdicts(self) -> dict[int, Verdict]:
        return dict(self._documents("verdicts", Verdict))

    @cached_property
    def commits(self) -> dict[int, Commit]:
        return dict(self._documents("commits", Commit))

    @cached_property
    def swaps(self) -> dict[int, Swap]:
        return dict(self._documents("swaps", Swap))

    @cached_property
    def swapped(self) -> dict[int, Swapped]:
        return dict(self._documents("swapped", Swapped))

    @property
    def exchanged(self) -> dict[int, list[int]]:
        """The backfills of the batches that were ever swapped; readers are to see the rows of the last."""
        found = dict[int, list[int]]()
        for _, swap in sorted(self.swaps.items()):
            for put in (found.setdefault(batch, []) for batch in swap.batches):
                put[:] = [*put, swap.backfill] if swap.turn is SwapKind.SWAP else put[:-1]
        return found

    @property
    def published(self) -> list[int]:
        """The batches that a verdict publishes."""
        return sorted(batch for batch, verdict in self.verdicts.items() if verdict.decision is Decision.PUBLISH)

    @cached_property
    def logs(self) -> dict[str, list[list[dict[str, Any]]]]:
        """The actions of each version of each table."""
        found: dict[str, list[list[dict[str, Any]]]] = {}
        for key, data in self.objects.under(f"{PREFIX}tables/"):
            if match := _LOG.fullmatch(key):
                found.setdefault(match[1], []).append(_actions(data))
        return found

    def batches_in(self, table: str) -> list[tuple[int, dict[str, Any], set[str]]]:
        """The batches in a table's log, in its order: number, what the commit says of itself, and the added files."""
        found = []
        for actions in self.logs.get(table, ()):
            info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
            if info.get("coset.pipeline") == self.pipeline and "coset.plan" in info:
                added = {each["add"]["path"] for each in actions if "add" in each}
                found.append((int(info["coset.plan"]), info, added))
        return found

    def live(self, table: str) -> list[str]:
        """The files that readers of a table read, by their keys."""
        live = dict[str, None]()
        for actions in self.logs.get(table, ()):
            for each in actions:
                if "remove" in each:
                    live.pop(each["remove"]["path"], None)
            live |= {each["add"]["path"]: None for each in actions if "add" in each}
        return [f"{PREFIX}tables/{table}/{path}" for path in live]

    def rows(self, table: str) -> Counter[Offset]:
        """How often a table has each record."""
        rows = Counter[Offset]()
        for key in self.live(table):
            for partition, (start, end) in json.loads(self.objects.by_key.get(key, b"{}")).items():
                rows.update((partition, offset) for offset in range(start, end))
        return rows

    @property
    def arrived(self) -> set[Offset]:
        """All records that have arrived."""
        return {
            (f"{key.rpartition('/')[2]}-{number}", offset)
            for key, data in self.objects.under(f"{PREFIX}landed/")
            for number, end in enumerate(json.loads(data))
            for offset in range(end)
        }

    def receipts(self, batch: int) -> Iterator[tuple[int, Receipt]]:
        """The receipts of a batch, each with the number of its attempt."""
        for key, data in self.objects.under(f"{PREFIX}{self.pipeline}/receipts/{batch}/"):
            if "/group-" in key:
                receipt = decoded(Receipt, data, key)
                yield receipt.attempt, receipt

    def judged(self, batch: int, attempt: int) -> bytes:
        return self.objects.by_key.get(f"{PREFIX}{self.pipeline}/audits/{batch}/attempt-{attempt}/judgement.json", b"")

    def _documents(self, noun: str, kind: Any) -> Iterator[tuple[int, Any]]:
        for key, data in self.objects.under(f"{PREFIX}{self.pipeline}/{noun}/"):
            number = key.rpartition("/")[2].partition(".")[0]
            yield int(number), decoded(kind, unpack(data, key) if key.endswith(".gz") else data, key)


@lru_cache(maxsize=1 << 14)
def _actions(data: bytes) -> list[dict[str, Any]]:
    return actions_in(data)
