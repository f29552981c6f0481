"""A catalogue in a database, which changes several tables in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy import CursorResult, update
from sqlalchemy.orm import Session

from coset.sources.iceberg.catalogue_changes import TableChange
from coset.sources.iceberg.own_files import OwnFiles

_OWN = OwnFiles[TableMetadata]()


class SqlTogether(SqlCatalog):
    """A catalogue in a database."""

    def commit_together(self, changes: Sequence[TableChange]) -> None:
        """Change tables in one transaction, each upon the metadata that was read."""
        staged = [
            (each.table, self._update_and_stage_table(each.table, each.table.name(), each.requirements, each.updates))
            for each in changes
        ]
        for _, new in staged:
            self._write_metadata(new.metadata, new.io, new.metadata_location)
            _OWN.keep(".".join(new.name()), new.metadata_location, new.metadata)
        with Session(self.engine) as session:
            for old, new in staged:
                is_it = (
                    IcebergTables.catalog_name == self.name,
                    IcebergTables.table_namespace == self.namespace_to_string(old.name()[:-1]),
                    IcebergTables.table_name == old.name()[-1],
                    IcebergTables.metadata_location == old.metadata_location,
                )
                where, before = new.metadata_location, old.metadata_location
                to = {"metadata_location": where, "previous_metadata_location": before}
                done = session.execute(update(IcebergTables).where(*is_it).values(**to))
                if cast(CursorResult[Any], done).rowcount < 1:
                    raise CommitFailedException(f"{'.'.join(old.name())} was changed meanwhile")
            session.commit()
        for old, new in staged:
            self._delete_old_metadata(new.io, old.metadata, new.metadata)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        name, where = f"{orm_table.table_namespace}.{orm_table.table_name}", orm_table.metadata_location or ""
        if metadata := _OWN.found(name, where):
            io = self._load_file_io(metadata.properties, where)
            return Table(self.identifier_to_tuple(name), metadata, where, io, self)
        return super()._convert_orm_to_iceberg(orm_table)
