"""Steps as SQL: checked against the columns there are, and run in DuckDB."""
