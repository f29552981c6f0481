"""The benchmark: Coset beside what a user could run instead, on the same records, in one run."""
