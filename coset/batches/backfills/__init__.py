"""Backfills: published batches planned anew, run beside what is published, compared, swapped in and out."""
