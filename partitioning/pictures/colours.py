"""Colours of pictures: fill and line of each kind of box and fills of task groups, on a light and on a dark ground.

The hues are those of Okabe and Ito, which people of any colour vision tell apart; what they mean is said in words too.
"""

from __future__ import annotations

from collections.abc import Mapping

from partitioning.values import Value


class Colours(Value, frozen=True):
    """`kinds` has fill and line by kind of box; task groups take the fills of `groups` in turn."""

    ground: str
    text: str
    arrow: str
    kinds: Mapping[str, tuple[str, str]]
    groups: tuple[str, ...]


LIGHT = Colours(
    "#ffffff",
    "#1f2328",
    "#57606a",
    {
        "stream": ("#ddf0fb", "#0072b2"),
        "step": ("#f3f4f6", "#6b7280"),
        "table": ("#dcf3ea", "#00795a"),
        "stage": ("#fafbfc", "#57606a"),
        "exchange": ("#fde9cf", "#b25000"),
        "state": ("#e5e3f8", "#5b4fc0"),
        "result": ("#e5e3f8", "#5b4fc0"),
        "task": ("#f3f4f6", "#6b7280"),
        "group": ("#f3f4f6", "#6b7280"),
        "groups": ("#fafbfc", "#57606a"),
    },
    ("#cfe8f7", "#fbe3bd", "#c9ecdf", "#f3d9e8", "#f9f3b5", "#d5dcf5", "#f7d3c2", "#e3e5e8"),
)
DARK = Colours(
    "#0d1117",
    "#e6edf3",
    "#8b949e",
    {
        "stream": ("#0b2e45", "#56b4e9"),
        "step": ("#21262d", "#8b949e"),
        "table": ("#06352a", "#2fc79d"),
        "stage": ("#161b22", "#8b949e"),
        "exchange": ("#43290a", "#f0a24a"),
        "state": ("#252150", "#a49bf0"),
        "result": ("#252150", "#a49bf0"),
        "task": ("#21262d", "#8b949e"),
        "group": ("#21262d", "#8b949e"),
        "groups": ("#161b22", "#8b949e"),
    },
    ("#123f5c", "#543a0c", "#0b4a39", "#54273f", "#4a450d", "#2b3566", "#5a2c16", "#3a4048"),
)
