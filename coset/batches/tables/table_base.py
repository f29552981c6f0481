"""Where the tables of a store lie: an environment names the address before the first batch, and a move is by name."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator

from deltalake import DeltaTable

from coset.batches.backfills.swaps import finish
from coset.batches.sweeping import pipelines_in
from coset.batches.tables.held import held_in
from coset.batches.tables.logs import opened
from coset.batches.tables.owners import store_id
from coset.sources.files import Files
from partitioning.commands import MoveTables, Run
from partitioning.documents.document import decode, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import numbered
from partitioning.documents.stores import SplitStore, check_first_use, store_at
from partitioning.errors import Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.backfill import pipeline_of
from partitioning.model.root_names import STORE_ID, TABLES, TablesAt, tables_at_key, usual_tables
from spark_jobs.engine.occasions import clock_time
from spark_jobs.tables.table_schema import folder

# The variable with the address of the tables, which `tables` in coset.toml gives.
ASKED = "COSET_TABLES"


def settled(root: str) -> SplitStore:
    """The store at `root`, for a batch to be planned: with its tables at the address that the environment asks for.

    Raises Refused if there are tables at another address, or if the one that is asked for cannot be this store's.
    """
    store = store_at(root)
    if (found := differs(store)) is None:
        return store
    if _moves(store) or next(store.list(TABLES, 1), None) is not None:
        raise Refused(found)
    return _put(store, _address(store), "coset.toml or COSET_TABLES named it before the first batch")


def differs(store: SplitStore) -> Finding | None:
    """The finding that the environment asks for another address than that of the store's tables."""
    asked = _address(store)
    if asked == store.tables:
        return None
    what = f"the tables of this store lie at {store.tables}, and the environment names {asked}"
    then = (f"name {store.tables} again; or copy all that is there to {asked}, then ", MoveTables(asked))
    return Finding.of(Kind.TABLE_PLACE, what, store.root, then, tables=store.tables, asked=asked)


def move(store: SplitStore, to: str, why: str) -> SplitStore:
    """Let all tables of a store lie at another address, to which they were copied. This may be repeated.

    Raises Refused, with all findings, if a batch is open, or if a table there is not the one that is here.
    """
    new = _checked(store, to)
    if new == store.tables:
        return store
    names = sorted(name for name in pipelines_in(store) if pipeline_of(name) is None)
    findings = [each for name in names for each in _unlike(store, name, new)]
    refuse(findings)
    return _put(store, new, why)


def _address(store: SplitStore) -> str:
    """The address that the environment asks for; that of now, if it asks for none."""
    asked = os.environ.get(ASKED)
    return _checked(store, asked) if asked else store.tables


def _checked(store: SplitStore, address: str) -> str:
    """The address in its usual form. Raises Refused if it is none, or if it lies within the store or around it."""
    found, root = store_at(address).root, store.root
    if found != usual_tables(root) and (f"{found}/".startswith(f"{root}/") or f"{root}/".startswith(f"{found}/")):
        what, then = f"{found} lies within the store, or around it", "name an address beside it"
        raise Refused.of(Kind.TABLE_PLACE, what, root, then, tables=store.tables, asked=found)
    return found


def _put(store: SplitStore, address: str, why: str) -> SplitStore:
    """Note the address, which becomes this store's own. Raises Refused if it is another store's."""
    if address != usual_tables(store.root):
        check_first_use(store.documents)
        check_first_use(there := store_at(address))
        mine = store_id(store)
        theirs = there.put_new(STORE_ID, mine.encode()).decode()
        if theirs != mine:
            what, then = f"{address} has the tables of another store", "name an address that only this store has"
            raise Refused.of(Kind.TABLE_PLACE, what, store.root, then, tables=store.tables, asked=address)
    number, at = _moves(store), clock_time()
    ours = TablesAt(number, address, getpass.getuser(), why, at)
    stored = decode(TablesAt, store.put_new(tables_at_key(number), encode(ours)), store.uri(tables_at_key(number)))
    placed = store_at(store.root)
    if stored.address != address and (found := differs(placed)) is not None:
        raise Refused(found)
    return placed


def _moves(store: SplitStore) -> int:
    return sum(1 for _ in numbered(store.documents, TablesAt, tables_at_key))


def _unlike(store: SplitStore, pipeline: str, new: str) -> Iterator[Finding]:
    """Findings on what a pipeline is at, and on tables of it that are not the same at the new address."""
    finish(store, pipeline)
    standing = Ledger(store, pipeline).standing()
    if standing.plan is not None and standing.open:
        what = f"batch {standing.plan.batch} of {pipeline} is open, and writes to its tables"
        where = Ledger(store, pipeline).uri(pipeline)
        yield Finding.of(Kind.TABLE_PLACE, what, where, (Run(pipeline), " finishes it"), batch=standing.plan.batch)
    for write in standing.published.writes() if standing.published else ():
        name = write.declared.table
        here, there = folder(store, name), f"{new}/{name}"
        with opened(here) as log, opened(there) as copy:
            why = "is not there" if copy is None else log and _unlike_log(log, copy, there)
        if why:
            what = f"table {name} {why}"
            then = (f"copy all of {here} to {there}, then ", MoveTables(new))
            yield Finding.of(Kind.TABLE_PLACE, what, there, then, table=name, asked=new)


def _unlike_log(log: DeltaTable, copy: DeltaTable, there: str) -> str | None:
    if log.metadata().id != copy.metadata().id:
        return "is another one there"
    if log.version() != copy.version():
        return f"has version {copy.version()} there, and version {log.version()} here"
    gone = Files().missing([f"{there}/{path}" for path in held_in(log)])
    return f"lacks {len(gone)} of its files there" if gone else None
