"""What `coset` commands use, imported before there is one: what is forked from a process that has it begins at once.

Importing makes many objects that stay: the collector of garbage looks at none of them, neither here nor there.
"""

from __future__ import annotations

import gc
import os
from functools import cache
from importlib import import_module

import typer.main

_NAMES = (
    # What Typer and PyArrow import when they are first asked.
    "pyarrow.csv", "pyarrow.dataset", "pyarrow.acero", "typer.rich_utils", "coset.cli.assign", "coset.cli.batches",
    "coset.cli.diff", "coset.cli.main", "coset.cli.plans", "coset.cli.sizes", "coset.cli.status",
    "coset.batches.auditing.audit", "coset.batches.continuity", "coset.batches.planning", "coset.batches.publication",
    "coset.batches.runners.connect", "coset.batches.runners.local", "coset.batches.runners.spark",
    "coset.batches.runners.spark_submit", "expectations.checkpoint", "expectations.docs",
    "spark_jobs.engine.preloaded",
)  # fmt: skip

gc.disable()
for name in _NAMES:
    import_module(name)
# Typer makes all commands anew for each that runs.
vars(typer.main)["get_command"] = cache(typer.main.get_command)
typer.main.get_command(import_module("coset.cli.main").app)
# As in the processes of the tests themselves: no machine loses power.
vars(os)["fsync"] = lambda _: None
gc.freeze()
gc.enable()
