"""The comparison: what a backfill gives beside what readers see."""
