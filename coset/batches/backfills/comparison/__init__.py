"""The comparison of a backfill's rows with those that readers see."""
