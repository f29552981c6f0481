"""Result tables on the command line: to whom they belong, and what others did to them."""

from __future__ import annotations

import getpass
import os

from coset.batches.tables import handing_over, others, table_base
from coset.batches.tables import iceberg as following
from coset.cli import pipelines
from coset.cli.output import Answer, check_reason
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.sources import address_of


def hand_over(table: str, root: str, before: str | None, to: str, why: str) -> Answer:
    """Give a table to another pipeline, and say so."""
    check_reason(why, "why it is handed over")
    handing_over.hand_over(store_at(root), table, before, to, who=getpass.getuser(), why=why)
    no_longer = f", and no longer to {before}" if before else ""
    now = "of this store now" if before == to else f"now{no_longer}"
    said = f"Table {table} belongs to pipeline {to} {now}"
    return Answer({"table": table, "from": before, "to": to}, [said])


def accept_changes(table: str, root: str, version: int, why: str) -> Answer:
    """Accept what others did to a table, and say so."""
    check_reason(why, "why it is right")
    others.accept(store_at(root), table, version, who=getpass.getuser(), why=why)
    said = f"What was done to table {table} up to version {version} is accepted"
    return Answer({"table": table, "version": version}, [said])


def iceberg(named: str, root: str) -> Answer:
    """Take the Iceberg tables of a pipeline to what its tables are, and say which were not."""
    pipeline, place = pipelines.load(named), following.asked()
    if place is None:
        what, then = "this environment names no catalogue", 'write iceberg = "CATALOGUE.NAMESPACE" into it'
        raise Refused.of(Kind.SETTING, what, f"environment, or {following.ASKED}", then, variable=following.ASKED)
    taken = following.follow(store_at(root), pipeline.name)
    said = [f"{name} has what its table has now" for name in taken]
    return Answer({"tables": taken}, said or [f"All Iceberg tables of {pipeline.name} have what its tables have"])


def move(to: str, root: str, why: str) -> Answer:
    """Let all tables of the store lie at another address, and say so."""
    check_reason(why, "why they are moved")
    store = store_at(root)
    placed = table_base.move(store, to if ":" in to.partition("/")[0] else address_of(os.path.abspath(to)), why)
    said = f"The tables of {placed.root} lie at {placed.tables}" + (
        f" now, and no longer at {store.tables}, which may be removed" if placed.tables != store.tables else " already"
    )
    return Answer({"tables": placed.tables, "before": store.tables}, [said])
