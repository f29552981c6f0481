"""Shares of the key space: dealt by partitioners, split and merged by load."""
