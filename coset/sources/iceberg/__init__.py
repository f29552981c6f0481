"""Iceberg tables as inputs: the rows that snapshots have appended, read by the buckets of their keys."""
