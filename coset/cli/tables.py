"""Result tables on the command line: to whom they belong, and what others did to them."""

from __future__ import annotations

import getpass

from coset.batches.tables import handing_over, others
from coset.cli.output import check_reason, show, show_json
from partitioning.documents.stores import store_at


def hand_over(table: str, root: str, before: str | None, to: str, why: str, *, as_json: bool) -> None:
    """Give a table to another pipeline, and say so."""
    check_reason(why, "why it is handed over")
    handing_over.hand_over(store_at(root), table, before, to, who=getpass.getuser(), why=why)
    if as_json:
        show_json({"table": table, "from": before, "to": to})
        return
    show(f"Table {table} belongs to pipeline {to} now" + (f", and no longer to {before}" if before else ""))


def accept_changes(table: str, root: str, version: int, why: str, *, as_json: bool) -> None:
    """Accept what others did to a table, and say so."""
    check_reason(why, "why it is right")
    others.accept(store_at(root), table, version, who=getpass.getuser(), why=why)
    if as_json:
        show_json({"table": table, "version": version})
        return
    show(f"What was done to table {table} up to version {version} is accepted")
