"""Compression of whole files, told by their first bytes: gzip, Zstandard, and Snappy as Java's streams frame it."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from coset.sources.formats.landed_file import LAND_AGAIN, Unreadable

# What a name may end in behind that of the format.
ENDINGS = r"(\.(gz|zst|snappy))?"
_GZIP, _ZSTD, _SNAPPY = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x82SNAPPY\0"
# Behind Snappy's name stand two versions, of so many bytes together.
_VERSIONS = 8


@contextmanager
def decompressed(source: pa.NativeFile, fetched: int) -> Iterator[Any]:
    """What a file holds, to be read from its beginning; so many bytes of it are fetched at once, or a few.

    Reading raises Unreadable or an error of Arrow's where the file is cut off.
    """
    source.seek(0)
    plain = io.BufferedReader(source, max(fetched, len(_SNAPPY)))
    head = plain.peek(len(_SNAPPY))[: len(_SNAPPY)]
    try:
        if head.startswith(_GZIP):
            yield gzip.GzipFile(fileobj=plain)
        elif head.startswith(_ZSTD):
            # It would close the file with itself.
            frames = pa.CompressedInputStream(pa.PythonFile(_Stream(lambda: plain.read1(fetched)), "r"), "zstd")
            yield io.BufferedReader(_Stream(lambda: frames.read(fetched)), fetched)
        elif head == _SNAPPY:
            yield io.BufferedReader(_Stream(lambda: _block(plain)), fetched)
        else:
            yield plain
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Unreadable(f"the file is truncated or no gzip: {error}", LAND_AGAIN) from error
    finally:
        # It is ours only to read, and may be closed before who reads a part of it lets go.
        if not source.closed:
            plain.detach()


class _Stream(io.RawIOBase):
    """What a function gives part by part, until it gives nothing; it says how much it gave."""

    def __init__(self, following: Callable[[], bytes]) -> None:
        self._following = following
        self._part = memoryview(b"")
        self._given = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._given

    def readinto(self, into: Any) -> int:
        self._part = self._part or memoryview(self._following())
        some = min(len(into), len(self._part))
        into[:some], self._part = self._part[:some], self._part[some:]
        self._given += some
        return some


def _block(file: io.BufferedReader) -> bytes:
    """The next block of what Java's SnappyOutputStreams wrote; nothing at the end. Each stands behind its size."""
    head = _whole(file, 4) if file.peek(1) else b""
    while head == _SNAPPY[:4]:
        _whole(file, len(_SNAPPY) - 4 + _VERSIONS)
        head = _whole(file, 4) if file.peek(1) else b""
    if not head:
        return b""
    block = _whole(file, int.from_bytes(head, "big"))
    # It begins with the number of bytes that it holds, seven bits a byte.
    last = next((place for place, byte in enumerate(block) if byte < 128), 0)
    size = sum((byte & 127) << 7 * place for place, byte in enumerate(block[: last + 1]))
    return bytes(pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True))


def _whole(file: io.BufferedReader, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise Unreadable("the file is truncated or no Snappy: a block is cut off", LAND_AGAIN)
    return data
