"""Files of a store for PyArrow: small ones take one request."""

from __future__ import annotations

from hashlib import md5, sha256
from pathlib import Path

import pytest

from coset.sources.files import Files, NewFile
from partitioning.documents.stores import store_at


@pytest.mark.parametrize("most", [0, 5, 6, 100])
def test_a_new_file_is_created_once_it_is_larger_than_what_is_held(tmp_path: Path, most: int) -> None:
    path, files = tmp_path / "new", Files()
    new = NewFile(lambda: files.create(f"file://{path}"), most)
    for part in (b"ab", b"", b"cdef"):
        assert new.write(part) == len(part)
    held = new.end()
    assert (held, path.exists()) == ((b"abcdef", False) if most >= 6 else (None, True))
    assert (held or path.read_bytes(), new.size) == (b"abcdef", 6)
    assert new.digest.hexdigest() == sha256(b"abcdef").hexdigest()


def test_what_was_written_has_the_size_and_the_etag_that_the_store_has(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/new"
    answer, new, size, etag = Files().written(uri, lambda sink: sink.write(b"abcdef"))
    there = store_at(str(tmp_path)).head("new")
    assert there is not None
    assert (answer, new.size, size, etag) == (6, 6, there.size, there.etag)


def test_a_small_file_is_fetched_as_a_whole_if_it_is_the_one_that_is_meant(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"abcdef")
    uri, etag, files = f"file://{tmp_path}/there", md5(b"abcdef", usedforsecurity=False).hexdigest(), Files()
    whole = files.whole(uri, 6, etag, 6)
    assert whole is not None
    assert whole.read() == b"abcdef"
    assert files.whole(uri, 6, etag, 5) is None
    assert files.whole(uri, 6, "another", 6) is None
    assert files.whole(uri, 7, etag, 7) is None
    assert files.whole(f"{uri}-not", 6, etag, 6) is None
