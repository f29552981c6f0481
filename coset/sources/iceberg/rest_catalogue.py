"""A REST catalogue that is waited for only so long, as PyIceberg would for ever, and that changes tables together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyiceberg.catalog.rest import _RETRY_ARGS, SNAPSHOT_LOADING_MODE, Endpoint, RestCatalog
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.exceptions import BadRequestError, CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableRequest, Namespace, Table, TableIdentifier
from pyiceberg.typedef import Identifier
from requests import HTTPError, Session
from tenacity import retry

from coset.sources.iceberg.catalogue_changes import TIMEOUT, TableChange, commit_each

_TRANSACTION = Endpoint.from_string("POST /v1/{prefix}/transactions/commit")
_UNKNOWN = dict.fromkeys((500, 502, 504), CommitStateUnknownException)


class RestWithin(RestCatalog):
    """A REST catalogue whose requests end in time."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        session.request = partial(session.request, timeout=TIMEOUT)  # type: ignore[method-assign]
        return session

    def load_table(self, identifier: str | Identifier) -> Table:
        try:
            found: Table = super().load_table(identifier)
        except BadRequestError:
            # Iceberg 1.11 cannot leave out a snapshot that has statistics, as of Trino's ANALYZE.
            if self.properties.pop(SNAPSHOT_LOADING_MODE, None) is None:
                raise
            found = super().load_table(identifier)
        return found

    @retry(**_RETRY_ARGS)  # type: ignore[call-overload, untyped-decorator]
    def commit_together(self, changes: Sequence[TableChange]) -> None:
        """Change tables in one transaction; one after another if the catalogue has none."""
        if len(changes) < 2 or _TRANSACTION not in self._supported_endpoints:
            commit_each(changes)
            return
        asked = ",".join(
            CommitTableRequest(
                identifier=TableIdentifier(
                    namespace=Namespace([*change.table.name()[:-1]]), name=change.table.name()[-1]
                ),
                requirements=change.requirements,
                updates=change.updates,
            ).model_dump_json()
            for change in changes
        )
        answer = self._session.post(self.url("transactions/commit"), data=f'{{"table-changes": [{asked}]}}'.encode())
        try:
            answer.raise_for_status()
        except HTTPError as error:
            _handle_non_200_response(error, {409: CommitFailedException, **_UNKNOWN})
