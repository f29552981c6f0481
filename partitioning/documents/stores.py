"""Stores by their roots: the one place that knows which kinds of store there are."""

from __future__ import annotations

import os

from partitioning.documents.folder_store import FolderStore
from partitioning.documents.split_store import SplitStore
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.sources import FOLDER, address_of, why_no_root


def store_at(root: str) -> SplitStore:
    """The store at `s3://bucket/prefix` or in a folder, `file:///…` or its whole path. Raises Refused if it is none."""
    return SplitStore(_at(root), _at)


def named_root(store: str | os.PathLike[str]) -> str:
    """The root of a store that is named by its address, or by a folder of the working folder."""
    named = os.fspath(store)
    # A colon in the first part means an address, even an invalid one.
    return named if ":" in named.partition("/")[0] else address_of(os.path.abspath(named))


def _at(root: str) -> Store:
    address = address_of(root).rstrip("/")
    if why := why_no_root(address):
        then = "write it as s3://bucket/prefix, or as the path of a folder"
        raise Refused.of(Kind.STORE_ADDRESS, f"{root!r} {why}", "store", then, root=root)
    if address.startswith(FOLDER):
        return FolderStore(address)
    from partitioning.documents.s3_store import S3Store  # noqa: PLC0415  a trial in a folder does without boto3

    return S3Store(address)
