"""For people who come from Samza: its groupings, groupers, key buckets and checkpoints."""
