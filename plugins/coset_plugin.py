"""Airflow loads this file from the clone's folder of plugins; an installed Coset has registered the same already."""

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="coset"):
    from coset.airflow.plugin import CosetPlugin

    __all__ = ["CosetPlugin"]
