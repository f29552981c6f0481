"""A REST catalogue that is waited for only so long; PyIceberg would wait for ever."""

from __future__ import annotations

from functools import partial

from pyiceberg.catalog.rest import RestCatalog
from requests import Session

# Seconds to connect, and between two bytes of an answer: those of the store.
TIMEOUT = 5, 60


class RestWithin(RestCatalog):
    """A REST catalogue whose requests end in time."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        session.request = partial(session.request, timeout=TIMEOUT)  # type: ignore[method-assign]
        return session
