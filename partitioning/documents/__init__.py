"""Documents as stored: canonical bytes with a digest, the ledger that they lie in, and the store."""
