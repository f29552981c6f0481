"""Templates of the pages. Values are shown so that they load and run nothing."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.nodes import EvalContext
from markupsafe import Markup, escape

from partitioning.model.verdict import Outcome
from partitioning.texts import MOST_IN_A_SENTENCE, environment, visible

PAGES = Path(__file__).with_name("pages")
# What all templates know.
GLOBALS = {"outcomes": tuple(Outcome), "environment": environment}


@cache
def template(name: str) -> jinja2.Template:
    """The template of this name in `pages/`."""
    loader = jinja2.FileSystemLoader(PAGES)
    made = jinja2.Environment(loader=loader, autoescape=True, finalize=seen)
    made.globals.update(GLOBALS)
    made.filters["advice"] = advice
    return made.get_template(name)


def advice(text: str) -> Markup:
    """What to do next, with its commands as such.

    >>> advice("correct it, then `coset replan <a>`")
    Markup('correct it, then <code>coset replan &lt;a&gt;</code>')
    """
    shown = str(escape(visible(text, MOST_IN_A_SENTENCE, lines=True)))
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", shown))  # noqa: S704  it is escaped


@jinja2.pass_eval_context
def seen(where: EvalContext, value: Any) -> Any:
    """A value as a page shows it; Jinja then escapes it. What Great Expectations renders is HTML already and is not
    cut."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return visible(value, MOST_IN_A_SENTENCE if where.autoescape else len(value), lines=True)
