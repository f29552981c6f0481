"""The site of the Data Docs: a local folder and the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partitioning.documents.store import Store
from partitioning.errors import Refused, docs_unwritten
from partitioning.model.outcome import Outcome

# An attempt in a list: what became of it, and its figures by their names.
Row = Mapping[str, Any]
# Airflow's own variable: where its pages are, as browsers see them.
AIRFLOW = "AIRFLOW__API__BASE_URL"


@dataclass(frozen=True, slots=True)
class Site:
    """Pages go to `<pipeline>/docs/` in the store and to `<pipeline>/` in a local folder, if there is one."""

    folder: Path | None
    store: Store

    @classmethod
    def shown(cls, folder: Path | None, store: Store, pipeline: str) -> Site:
        """The site, with the folder only if it shows the pipeline already: a change of what it shows makes no other."""
        there = folder is not None and (folder / pipeline / "index.html").exists()
        return cls(folder if there else None, store)

    def has(self, pipeline: str, name: str) -> bool:
        """Whether the folder has this page."""
        return self.folder is not None and (self.folder / pipeline / name).exists()

    def write(self, pipeline: str, name: str, text: str) -> Path | None:
        """Write a page into the folder, and return its path. Raises Refused if that fails."""
        if self.folder is None:
            return None
        page = self.folder / pipeline / name
        try:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Refused(docs_unwritten(self.folder, error)) from error
        return page


def outcome(row: Row) -> Outcome:
    """The outcome of a row's attempt. Rows of earlier versions only say whether it was proved."""
    return Outcome(row["outcome"]) if "outcome" in row else Outcome.PROVED if row["success"] else Outcome.FAILED


def state(row: Row) -> str:
    """The outcome of a row's attempt, for people, with how many warnings it has."""
    return outcome(row).of(row.get("warnings") or 0)


def style(row: Row) -> str:
    """The name by which a page colours the outcome of a row's attempt."""
    warned = outcome(row) is Outcome.PROVED and outcome(row).is_warned(row.get("warnings") or 0)
    return "warned" if warned else outcome(row).name.lower()


def listed(store: Store, pipeline: str, name: str) -> list[dict[str, Any]]:
    """The stored rows of a list of a pipeline's pages."""
    rows: list[dict[str, Any]] = json.loads(store.get(f"{pipeline}/docs/{name}.json") or b"[]")
    return rows
