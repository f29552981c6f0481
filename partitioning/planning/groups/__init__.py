"""Task groups: which tasks share a Spark job, and where it runs."""
