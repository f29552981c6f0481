"""What happens to a batch: planned against a store, run, audited, decided, published."""
