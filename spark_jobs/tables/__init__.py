"""The layout of result tables' data files."""
