"""What `coset` commands use, imported before there is one: what is forked from a process that has it begins at once.

Importing makes many objects that stay: the collector of garbage looks at none of them, neither here nor there.
"""

from __future__ import annotations

import gc
from importlib import import_module

_NAMES = (
    "cli.assign",
    "cli.batches",
    "cli.diff",
    "cli.main",
    "cli.plans",
    "cli.sizes",
    "cli.status",
    "batches.audit",
    "batches.continuity",
    "batches.planning",
    "batches.publication",
    "batches.runners.connect",
    "batches.runners.local",
    "batches.runners.spark",
    "batches.runners.spark_submit",
    "expectations.checkpoint",
    "expectations.docs",
    "spark_jobs.preloaded",
)

gc.disable()
for name in _NAMES:
    import_module(name)
gc.freeze()
gc.enable()
