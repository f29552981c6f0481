"""Reach: whether tasks on other machines can read and write what a batch names. A folder serves one machine only."""

from __future__ import annotations

from coset.batches.ref import BatchRef
from coset.batches.runners.ports import is_loopback
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.sources import FOLDER
from partitioning.model.tables_at import TABLES


def runs_here(master: str) -> bool:
    """Whether all executors of a master, or all tasks of a Spark server, are on this machine.

    Pods of a Kubernetes on this machine count as elsewhere.

    >>> runs_here("local[2]"), runs_here("spark://127.0.0.1:7077"), runs_here("sc://spark.example:15002")
    (True, True, False)
    """
    scheme, _, hosts = master.partition("://")
    if scheme in ("spark", "sc"):
        return all(is_loopback(host.partition(";")[0].rpartition(":")[0].strip("[]")) for host in hosts.split(","))
    return master.startswith("local")


def check_reach(batch: BatchRef, master: str) -> None:
    """Raise Refused with all findings if the store or a source is a folder and tasks run on other machines."""
    if runs_here(master):
        return
    ledger, plan = batch.load()
    folders = {"the store": ledger.store.root, "where its tables lie": ledger.uri(TABLES).rstrip("/")}
    folders |= {f"the source of {each.name}": each.declared.source for each in plan.streams}
    then = "use an s3:// address, or run on this machine: --master 'local[*]', or --runner local"
    findings = [
        Finding.of(
            Kind.STORE_ELSEWHERE,
            f"{what} is a folder of this machine, and {master} runs tasks on others",
            root,
            then,
            root=root,
            master=master,
        )
        for what, root in folders.items()
        if root.startswith(FOLDER)
    ]
    if findings:
        raise Refused(*findings)
