"""The one idea: tasks and partitions that share keys, and who reads what."""
