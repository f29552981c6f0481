"""Where Data Docs go: a local folder, and the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partitioning.documents.store import Store
from partitioning.errors import Refused, docs_unwritten
from partitioning.model.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Site:
    """Where Data Docs go: below `<pipeline>/` in a local folder, if one is named, and below `<pipeline>/docs/` in the
    store."""

    folder: Path | None
    store: Store

    def has(self, pipeline: str, name: str) -> bool:
        """Whether the folder has this page."""
        return self.folder is not None and (self.folder / pipeline / name).exists()

    def write(self, pipeline: str, name: str, text: str) -> Path | None:
        """Write a page into the folder; where it is. Raises Refused if that fails."""
        if self.folder is None:
            return None
        page = self.folder / pipeline / name
        try:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Refused(docs_unwritten(self.folder, error)) from error
        return page


def outcome(row: Mapping[str, Any]) -> Outcome:
    """What became of the attempt of a row. Rows of earlier versions only say whether it was proved."""
    return Outcome(row["outcome"]) if "outcome" in row else Outcome.PROVED if row["success"] else Outcome.FAILED


def listed(store: Store, pipeline: str, name: str) -> list[dict[str, Any]]:
    """The rows that the store has for a list of a pipeline's pages."""
    rows: list[dict[str, Any]] = json.loads(store.get(f"{pipeline}/docs/{name}.json") or b"[]")
    return rows
