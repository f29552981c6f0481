"""Pacing: when the task groups of a backfill may start, and when it is done."""
