"""Shares of the key space: assigned by partitioners, split and merged by load."""
