"""A plan as tables for people."""
