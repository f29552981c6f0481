"""What is asked of an S3 server, counted by a proxy in front of it, by what it costs and what it is for.

Files of one stream are landed in it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from coset.sources.s3 import s3_filesystem
from demo.s3_server import S3Server, served
from tests.faults import FaultProxy

LANDED, BUCKET = "topics", "landing"
SOURCE, STORE = f"s3://{BUCKET}/{LANDED}", f"s3://{BUCKET}/store"


class Priced(StrEnum):
    """What S3 has prices for: reading, writing or listing, and removing, which costs nothing."""

    READ = "reads"
    WRITE = "writes"
    LIST = "lists"
    DELETE = "deletes"


@dataclass(frozen=True, slots=True)
class Request:
    """A request, by its price, and what it is about, such as `receipts` or `Delta logs`."""

    priced: Priced
    about: str

    @classmethod
    def of(cls, method: str, path: str) -> Request:
        """By its method and path.

        >>> Request.of("HEAD", "/landing/store/tables/t/data/plan-0/attempt-0-1/a.parquet")
        Request(priced=<Priced.READ: 'reads'>, about='files of tables')
        >>> Request.of("GET", "/landing?list-type=2&prefix=store%2Fviews%2Fplans%2F").about
        'plans'
        """
        split = urlsplit(path)
        listed = parse_qs(split.query).get("prefix", [""]) if "list-type" in split.query else None
        key = listed[0] if listed else unquote(split.path).removeprefix(f"/{BUCKET}/")
        return cls(Priced.LIST if listed else _PRICED[method], _about(key))


_PRICED = {
    "GET": Priced.READ,
    "HEAD": Priced.READ,
    "PUT": Priced.WRITE,
    "POST": Priced.WRITE,
    "DELETE": Priced.DELETE,
}


def _about(key: str) -> str:
    if key.startswith(LANDED):
        return "landed files"
    if "/_delta_log/" in key:
        return "Delta logs"
    if "/tables/" in key:
        return "files of tables"
    if "/docs/" in key or key.startswith("store/docs"):
        return "pages"
    noun = re.match(r"store/[^/]+/([a-z-]+)/", key)
    return {"left": "state and exchanges"}.get(noun[1], noun[1]) if noun else "the store itself"


class Asked:
    """A running S3 server behind the proxy that counts."""

    def __init__(self, server: S3Server, proxy: FaultProxy) -> None:
        self.server, self._proxy = server, proxy

    def since(self) -> Counter[Request]:
        """The requests since this was asked last."""
        return Counter(Request.of(method, path) for method, path in self._proxy.asked())


@contextmanager
def counted() -> Iterator[Asked]:
    """An S3 server, whose requests are counted, as that of this process's environment."""
    with TemporaryDirectory() as folder, served(Path(folder) / "s3", (BUCKET,)) as server:
        proxy = FaultProxy(server.environment["AWS_ENDPOINT_URL"])
        os.environ["AWS_ENDPOINT_URL"] = proxy.url
        try:
            yield Asked(server, proxy)
        finally:
            proxy.stop()


def file_of(partition: int, first: int) -> str:
    """The name, below SOURCE, of a file of the stream `views` whose first offset this is."""
    return f"views/partition={partition}/views+{partition}+{first:010}.parquet"


def land_views(partition: int, first: int, members: Sequence[str]) -> None:
    """Land a file of the stream `views`: a record of each of these members, at the offsets from `first` on."""
    offsets = pa.array(range(first, first + len(members)), pa.int64())
    with s3_filesystem().open_output_stream(f"{BUCKET}/{LANDED}/{file_of(partition, first)}") as sink:
        pq.write_table(pa.table({"member": members, "_offset": offsets}), sink)


def by_price(requests: Counter[Request]) -> dict[Priced, int]:
    """How many there are of each price."""
    return {priced: sum(n for request, n in requests.items() if request.priced is priced) for priced in Priced}


def in_words(requests: Counter[Request]) -> str:
    """The same in words."""
    return ", ".join(f"{count:,} {priced}" for priced, count in by_price(requests).items() if count)


def by_subject(requests: Counter[Request]) -> list[tuple[str, ...]]:
    """A row for each thing that requests are about, the most frequent first: with how many there are of each price."""
    of = Counter[str]()
    for request, count in requests.items():
        of[request.about] += count
    return [(about, f"{n:,}", *(f"{requests[Request(p, about)]:,}" for p in Priced)) for about, n in of.most_common()]


SUBJECTS = ("what for", "requests", *Priced)
