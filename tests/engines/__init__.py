"""What differs between versions of DuckDB, asked of each of them. `make engines` writes what Coset ships of it."""
