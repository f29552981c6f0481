"""A catalogue in a database, which changes several tables in one transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from sqlalchemy import CursorResult, update
from sqlalchemy.orm import Session

from coset.sources.iceberg.named_catalogue import TableChange


class SqlTogether(SqlCatalog):
    """A catalogue in a database."""

    def commit_together(self, changes: Sequence[TableChange]) -> None:
        """Change tables in one transaction, each upon the metadata that was read."""
        staged = [(each.table, self._staged(each)) for each in changes]
        for old, (where, metadata) in staged:
            self._write_metadata(metadata, old.io, where)
        with Session(self.engine) as session:
            for old, (where, _) in staged:
                is_it = (
                    IcebergTables.catalog_name == self.name,
                    IcebergTables.table_namespace == self.namespace_to_string(old.name()[:-1]),
                    IcebergTables.table_name == old.name()[-1],
                    IcebergTables.metadata_location == old.metadata_location,
                )
                to = {"metadata_location": where, "previous_metadata_location": old.metadata_location}
                done = session.execute(update(IcebergTables).where(*is_it).values(**to))
                if cast(CursorResult[Any], done).rowcount < 1:
                    raise CommitFailedException(f"{'.'.join(old.name())} was changed meanwhile")
            session.commit()
        for old, (_, metadata) in staged:
            self._delete_old_metadata(old.io, old.metadata, metadata)

    def _staged(self, change: TableChange) -> tuple[str, TableMetadata]:
        """Where the metadata of a table are to lie after a change, and these. PyIceberg itself would copy each of its
        snapshots, which takes longer than all else if there are many."""
        old, context = change.table, _TableMetadataUpdateContext()
        for requirement in change.requirements:
            requirement.validate(old.metadata)
        new = old.metadata
        for each in change.updates:
            new = _apply_table_update(each, new, context)
        new.spec().check_compatible(new.schema())
        new.sort_order().check_compatible(new.schema())
        new = _update_table_metadata_log(new, old.metadata_location, old.metadata.last_updated_ms)
        places = load_location_provider(new.location, new.properties)
        where = places.new_table_metadata_file_location(self._parse_metadata_version(old.metadata_location) + 1)
        return where, new.model_copy(update={"last_updated_ms": int(1000 * time.time())})
