"""Pipelines, and the DAG files that schedule them."""
