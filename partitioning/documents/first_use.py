"""First use of a store: whether it does what everything rests on, before anything lies in it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from secrets import token_hex

from partitioning.documents.store import Store
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind
from partitioning.model.root_names import STORE_ID

RACERS = 8
CONDITIONAL = "use a store with conditional writes (If-None-Match), as S3, SeaweedFS and MinIO have"


def check_first_use(store: Store) -> None:
    """Raise Refused if a store without an id lets several create an object, or does not read or list what was written.

    It writes an object and removes it. A store gets its id with its first published batch, or as its tables are to lie
    elsewhere, and is not asked again.
    """
    if store.get(STORE_ID) is not None:
        return
    key, broken = f"{STORE_ID}-probe-{token_hex(8)}", list[str]()
    try:
        told = told_at_once(store, key)
        if len(told) > 1:
            broken.append(several(told))
        elif store.put_new(key, b"later") not in told:
            broken.append("an object that was there was replaced, though only a new one was to be created")
        elif store.get(key) not in told:
            broken.append("an object was read otherwise than it was written")
        if not any(entry.key == key for entry in store.list(key)):
            broken.append("an object that was written is not listed")
    finally:
        # Who may not remove it leaves a few bytes there.
        with suppress(CosetError):
            store.delete(key)
    if broken:
        what = f"the store cannot be relied on: {'; '.join(broken)}"
        then = f"{CONDITIONAL}; `coset doctor` tries one"
        raise Refused.of(Kind.STORE_ADDRESS, what, store.root, then, root=store.root)


def told_at_once(store: Store, key: str) -> set[bytes]:
    """What several who create an object at once are told is stored."""
    with ThreadPoolExecutor(RACERS) as pool:
        return set(pool.map(lambda number: store.put_new(key, f"{number}".encode()), range(RACERS)))


def several(told: set[bytes]) -> str:
    """How many of them were told that theirs is stored, in words."""
    return f"of {RACERS} who wrote an object at once, {len(told)} were told that theirs is stored"
