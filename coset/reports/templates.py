"""Templates of the pages. Values are shown so that they load and run nothing."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.nodes import EvalContext
from markupsafe import Markup

from partitioning.texts import MOST_IN_A_SENTENCE, visible

PAGES = Path(__file__).with_name("pages")


@cache
def template(name: str) -> jinja2.Template:
    """The template of this name in `pages/`."""
    loader = jinja2.FileSystemLoader(PAGES)
    return jinja2.Environment(loader=loader, autoescape=True, finalize=seen).get_template(name)


@jinja2.pass_eval_context
def seen(where: EvalContext, value: Any) -> Any:
    """A value as a page shows it; Jinja then escapes it. What Great Expectations renders is HTML already and is not
    cut."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return visible(value, MOST_IN_A_SENTENCE if where.autoescape else len(value), lines=True)
