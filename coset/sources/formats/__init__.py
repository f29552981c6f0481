"""Formats of landed files, each read in the same way."""
