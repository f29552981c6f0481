"""The one idea: which tasks and which partitions share keys, and who reads what."""
