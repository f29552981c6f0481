"""The one idea: the partitions that share keys with each task."""
