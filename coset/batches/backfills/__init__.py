"""Backfills: plan published batches again, run them beside the published data, compare, swap in and take back."""
