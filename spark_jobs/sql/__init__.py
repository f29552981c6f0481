"""The SQL of steps: how it is checked against columns, and the DuckDB database that runs it."""
