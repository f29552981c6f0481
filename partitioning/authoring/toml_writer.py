"""Settings as a TOML file, for settings that a program makes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import Any

from partitioning.authoring.settings import DEFAULTS, PartitionerRef, Settings
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.allowance import Allowance
from partitioning.model.schemes import Scheme

# What stages, steps and tables have of their own, and what is said of one batch.
_NOT_FOR_ALL = {"schemes", "partitioners", "fan_in", "accept_loss", "expectations"}
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(settings: Settings) -> str:
    """The text that `Settings.read` reads as these settings.

    >>> print(to_toml(Settings(groups=4, starts={"views-0": 21}, fan_in={"totals": 8})), end="")
    groups = 4
    starts = {views-0 = 21}
    <BLANKLINE>
    [steps.totals]
    fan_in = 8

    Raises Refused for an argument of a partitioner that TOML cannot hold.
    """
    lines = [f"{name} = {value(what)}" for name, what in _for_all(settings)]
    named = (*settings.schemes, *settings.partitioners, *settings.fan_in)
    for name in dict.fromkeys(named):
        # Only a step has a fan-in. All else may be under either, but one name must not be under both.
        kind = "steps" if name in settings.fan_in else "stages"
        lines += ["", f"[{kind}.{key(name)}]", *(f"{what} = {value(of)}" for what, of in _of(settings, name))]
    for table, expected in settings.expectations.items():
        lines += ["", f"[tables.{key(table)}]", f"expect = {value([json.loads(text) for text in expected])}"]
    return "\n".join(lines) + "\n"


def key(text: str) -> str:
    """A key, quoted where it has to be.

    >>> key("views-0"), key("views.eu-0")
    ('views-0', '"views.eu-0"')
    """
    return text if _BARE.fullmatch(text) else _text(text)


def value(plain: Any) -> str:
    """A value on one line. Raises Refused for what TOML cannot hold."""
    match plain:
        case bool():
            return str(plain).lower()
        case int() | float():
            return repr(plain)
        case str():
            return _text(plain)
        case datetime() | date() | time():
            return plain.isoformat()
        case list() | tuple():
            return f"[{', '.join(map(value, plain))}]"
        case Mapping():
            return f"{{{', '.join(f'{key(name)} = {value(inner)}' for name, inner in plain.items())}}}"
        case _:
            then = "use text, numbers, lists, tables or dates"
            what = f"{plain!r} cannot be written as TOML"
            raise Refused.of(Kind.SETTING, what, "settings", then, plain=plain)


def _for_all(settings: Settings) -> Iterator[tuple[str, Any]]:
    for name in Settings.__struct_fields__:
        held, default = getattr(settings, name), getattr(DEFAULTS, name)
        match held:
            case Scheme():
                yield name, str(held)
            case Allowance():
                if held.named:
                    yield "take_away", held.named
                if (held.rows, held.percent) != (default.rows, default.percent):
                    yield "far_fewer", {"rows": held.rows, "percent": held.percent}
            case _ if name not in _NOT_FOR_ALL and (held != default or name == "groups"):
                yield name, held


def _of(settings: Settings, name: str) -> Iterator[tuple[str, Any]]:
    """The settings of one stage or step."""
    if name in settings.schemes:
        yield "scheme", str(settings.schemes[name])
    if name in settings.partitioners:
        used = settings.partitioners[name]
        ref = used if isinstance(used, PartitionerRef) else PartitionerRef(used)
        yield "partitioner", {"use": ref.path, **ref.arguments} if ref.arguments else ref.path
    if name in settings.fan_in:
        yield "fan_in", settings.fan_in[name]


def _text(text: str) -> str:
    # JSON strings are TOML strings, except for one character that JSON does not escape.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
