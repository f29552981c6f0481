"""What the protocol of batches is, in TLA+, for TLC to look at."""
