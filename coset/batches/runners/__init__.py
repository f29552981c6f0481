"""Ways to run task groups."""
