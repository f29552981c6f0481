"""What `coset` commands use, made before there is one: what is forked from a process that has it begins at once.

Importing makes many objects that stay: the collector of garbage looks at none of them, neither here nor there.
"""

from __future__ import annotations

import gc
import os
import pkgutil
from contextlib import nullcontext, suppress
from functools import cache
from importlib import import_module
from typing import Any

import typer.main
from jinja2 import meta

# What is imported when it is first asked for.
_NAMES = (
    "pyarrow.csv",
    "pyarrow.dataset",
    "pyarrow.acero",
    "typer._adapters",
    "typer.rich_utils",
    "expectations.checkpoint",
    "spark_jobs.engine.preloaded",
)
_PACKAGES = ("coset.cli", "coset.batches", "coset.sources", "partitioning")


def _modules() -> list[str]:
    packages = [import_module(name) for name in _PACKAGES]
    return [each.name for one in packages for each in pkgutil.walk_packages(one.__path__, f"{one.__name__}.")]


def _make_commands() -> None:
    """Typer makes all commands anew for each that runs, and with it what reads their options."""
    vars(typer.main)["get_command"] = cache(typer.main.get_command)
    commands: list[Any] = [typer.main.get_command(import_module("coset.cli.main").app)]
    for command in commands:
        commands += getattr(command, "commands", {}).values()
        for option in command.params:
            # Typer before 0.29 has none.
            getattr(option, "get_runtime_param", lambda: None)()


def _compile_templates() -> None:
    """Jinja compiles a template when it is first shown, with those that it includes."""
    from coset.reports.templates import PAGES, template
    from expectations.docs import _batch_template

    batch = _batch_template()
    pages = [*(template(file.name) for file in PAGES.glob("*.html") if file.name != batch.name), batch]
    shown: list[tuple[Any, list[Any]]] = [(page.environment, [page.name]) for page in pages]
    # Great Expectations chooses these by what is to be shown.
    shown.append((batch.environment.linked_to, ["table.j2", "string_template.j2"]))
    for environment, names in shown:
        for name in names:
            environment.get_template(name)
            source, _, _ = environment.loader.get_source(environment, name)
            included = meta.find_referenced_templates(environment.parse(source))
            names += [each for each in included if each and each not in names]


def _make_decoders() -> None:
    """Msgspec works out how a kind of document is read when it is first read."""
    from partitioning.documents.document import decoder
    from partitioning.values import Document

    kinds: list[Any] = [Document]
    for kind in kinds:
        kinds += kind.__subclasses__()
        decoder(kind)


gc.disable()
for name in (*_NAMES, *_modules()):
    # Not every version of Typer has this one.
    with suppress(ModuleNotFoundError) if name == "typer._adapters" else nullcontext():
        import_module(name)
_make_commands()
_make_decoders()
_compile_templates()
# As in the processes of the tests themselves: no machine loses power.
vars(os)["fsync"] = lambda _: None
gc.freeze()
gc.enable()
