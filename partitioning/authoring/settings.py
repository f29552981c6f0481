"""Settings: how to plan. The number of tasks and their groups change no result.

`limit` and `starts` do: they choose the records of a batch, and a table has a row for each key and batch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import field

from partitioning.errors import Finding, Refused, noting, refuse
from partitioning.imports import is_import_path
from partitioning.kinds import Kind
from partitioning.model.allowance import Allowance
from partitioning.model.measures import as_text
from partitioning.model.offsets import OffsetRange
from partitioning.model.plan import OFFENDERS_TOLD
from partitioning.model.schemes import HotKeys, Scheme
from partitioning.numbers import FAN_IN, GROUPS, OFFENDERS, OFFSET, PERCENT, RECORDS, ROWS, Bound
from partitioning.values import Value, replace

BALANCED_STICKY = "balanced-sticky"


class PartitionerRef(Value, frozen=True):
    """A partitioner: the import path of its factory, and the factory's keyword arguments.

    >>> print(PartitionerRef("shop.parts:ByBytes", {"maximum": 30000}))
    shop.parts:ByBytes(maximum=30000)
    """

    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in sorted(self.arguments.items()))
        return f"{self.path}({listed})" if listed else self.path


class Asking(Value, frozen=True):
    """How a setting is asked for when a batch is planned: by an option of commands, with its `help` and the word for a
    value, and by a field of Airflow's form, if that has a `title`. A setting of records is none `of_backfills`, which
    read again what was read."""

    help: str
    word: str | None = None
    title: str = ""
    field: str = ""
    of_backfills: bool = True
    number: bool = False


ASKED = {
    "scheme": Asking(
        "max, cogroup, elastic(F), tasks(L) or records(N), for all stages or, repeated, for one stage each "
        "(new plans only).",
        "[STAGE=]SCHEME",
    ),
    "groups": Asking("How many task groups, that is Spark jobs (2; new plans only).", number=True),
    "limit": Asking(
        "Read at most N records of each stream partition (new plans only).", of_backfills=False, number=True
    ),
    "accept_loss": Asking(
        "Accept the loss of unread offsets, as the error named them: views-0@[900,1200). Repeatable.",
        "RANGE",
        of_backfills=False,
    ),
    "take_away": Asking(
        "Let the batch remove any number of rows of this table or step. Repeatable (new plans only).",
        "NAME",
        "Take away",
        "Tables and steps that may lose any number of rows in a new batch",
        of_backfills=False,
    ),
    "begin_anew": Asking(
        "Start a new or changed step without its old state, or a new table, as the error named it. Repeatable.",
        "NAME",
        "Begin anew",
        "Steps that begin without state, and new tables, as a finding named them",
    ),
    "go_on": Asking(
        "Continue a step from its old state, or a table from its rows, as the error named it. Repeatable.",
        "NAME",
        "Go on",
        "Steps that continue though those before them changed, and tables that were left out",
    ),
}


class Settings(Value, frozen=True):
    """What can be set for a pipeline without changing its code.

    `scheme` applies to all stages, `schemes` to one, by its name or that of a step in it. `partitioners` are named
    likewise. `fan_in` limits a unifier's inputs, by combine step. `grouper` (a built-in name or an import path) puts
    the tasks of each wave into `groups` task groups. `limit` is the most records read of each stream partition.
    `starts` names stream partitions (`flights-3`) whose first batch begins after their first offset. Offsets in
    `accept_loss` may be lost. Steps in `begin_anew` begin without state if they are new or changed, and tables if they
    are new; steps in `go_on` continue from their state although something before them changed, and tables from their
    rows although they were left out. `allowance` limits the rows that a batch may remove. `expectations` are added to
    those of result tables, by table, as JSON text. A finding lists so many `offenders`. `hot_keys` says what becomes of
    keys that make a task heavy.
    """

    scheme: Scheme | None = None
    schemes: Mapping[str, Scheme] = field(default_factory=dict)
    partitioners: Mapping[str, PartitionerRef | str] = field(default_factory=dict)
    fan_in: Mapping[str, int] = field(default_factory=dict)
    groups: int = 2
    grouper: str = BALANCED_STICKY
    hot_keys: HotKeys = HotKeys.LEAVE
    limit: int | None = None
    starts: Mapping[str, int] = field(default_factory=dict)
    accept_loss: tuple[OffsetRange, ...] = ()
    begin_anew: tuple[str, ...] = ()
    go_on: tuple[str, ...] = ()
    allowance: Allowance = Allowance()
    expectations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    offenders: int = OFFENDERS_TOLD

    @classmethod
    def read(cls, text: str, where: str) -> Settings:
        """Settings from the text of a TOML file; `where` names it in findings.

        >>> settings = Settings.read('groups = 4\\n[stages."flights+planes"]\\nscheme = "elastic(2)"', "settings.toml")
        >>> settings.groups, str(settings.schemes["flights+planes"])
        (4, 'elastic(2)')

        Raises Refused with all findings: no TOML, unknown keys, wrong types, numbers that are too small, unknown
        schemes, partitioners without an import path.
        """
        try:
            taken = _FILE(tomllib.loads(text), "")
        except ValueError as error:  # so tomllib tells of numbers of too many digits, too
            raise Refused.of(Kind.SETTING, f"it is no TOML: {error}", where, "correct it", error=error) from error
        except Refused as refusal:
            raise refusal.saying(lambda finding: replace(finding, where=f"{finding.where} in {where}")) from None
        few = taken.pop("far_fewer", {})
        allowance = Allowance(**few, named=taken.pop("take_away", ()))
        expected = {table: of["expect"] for table, of in taken.pop("tables", {}).items() if "expect" in of}
        tables = {**taken.pop("stages", {}), **taken.pop("steps", {})}
        return cls(
            **taken,
            allowance=allowance,
            expectations=expected,
            schemes=_by_name(tables, "scheme"),
            partitioners=_by_name(tables, "partitioner"),
            fan_in=_by_name(tables, "fan_in"),
        )

    @classmethod
    def parse(
        cls,
        *,
        scheme: str | Sequence[str] | None = None,
        groups: int | None = None,
        limit: int | None = None,
        accept_loss: Sequence[str] = (),
        begin_anew: Sequence[str] = (),
        go_on: Sequence[str] = (),
        take_away: Sequence[str] = (),
        base: Settings | None = None,
    ) -> Settings:
        """Settings from a command line or an Airflow form. What these do not set is that of `base`.

        A scheme applies to all stages, or to one as `name=scheme`:

        >>> settings = Settings.parse(scheme=["cogroup", "flights+planes=elastic(2)"], base=Settings(groups=3))
        >>> str(settings.scheme), str(settings.schemes["flights+planes"]), settings.groups
        ('cogroup', 'elastic(2)', 3)

        Raises Refused with all findings: unknown schemes, numbers below 1, ranges of offsets that are none.
        """
        base = base or cls()
        findings: list[Finding] = []
        texts = [scheme] if isinstance(scheme, str) else scheme or []
        schemes = dict(base.schemes)
        for name, _, text in (text.rpartition("=") for text in texts):
            schemes[name] = _taken(_scheme, text, "scheme", findings)
        changes = {
            key: _taken(_number(bound), value, key, findings)
            for key, value, bound in (("groups", groups, GROUPS), ("limit", limit, RECORDS))
            if value is not None
        }
        losses = tuple(_taken(_range, text, "accept_loss", findings) for text in accept_loss)
        refuse(findings)
        named = (*base.allowance.named, *(name for name in take_away if name not in base.allowance.named))
        changes |= {
            "accept_loss": (*base.accept_loss, *losses),
            "begin_anew": (*base.begin_anew, *begin_anew),
            "go_on": (*base.go_on, *go_on),
            "allowance": replace(base.allowance, named=named),
        }
        return replace(base, scheme=schemes.pop("", base.scheme), schemes=schemes, **changes)


DEFAULTS = Settings()

Parser = Callable[[Any, str], Any]


def _taken(parser: Parser, value: Any, place: str, findings: list[Finding]) -> Any:
    """The parsed value. None if the parser refuses it; its findings go to `findings`."""
    with noting(findings):
        return parser(value, place)
    return None


def _parsed(parse: Callable[[str], Any]) -> Parser:
    def parser(value: Any, place: str) -> Any:
        try:
            return parse(_text(value, place))
        except Refused as refusal:
            raise refusal.saying(lambda finding: replace(finding, where=place)) from None

    return parser


_scheme, _range = _parsed(Scheme.parse), _parsed(OffsetRange.parse)


def _hot_keys(value: Any, place: str) -> HotKeys:
    try:
        return HotKeys(_text(value, place))
    except ValueError:
        then = f"use {' or '.join(HotKeys)}"
        raise Refused.of(Kind.SETTING, f"hot keys cannot be {value!r}", place, then, value=value) from None


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise Refused.of(Kind.SETTING, f"{value!r} is no text", place, "write it in quotes", value=value)
    return value


def _number(bound: Bound) -> Parser:
    def parse(value: Any, place: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            what = f"{value!r} is no whole number"
            raise Refused.of(Kind.SETTING, what, place, f"use {bound.least} or more", value=value)
        return bound.check(value, place)

    return parse


def _partitioner(value: Any, place: str) -> PartitionerRef:
    arguments = dict(value) if isinstance(value, dict) else {"use": value}
    path = arguments.pop("use", None)
    if not isinstance(path, str) or not is_import_path(path):
        what = f"{path!r} is no import path" if path is not None else "it does not say which partitioner to use"
        then = 'write "package.module:name", or {use = "package.module:name", …}'
        raise Refused.of(Kind.SETTING, what, place, then, path=path)
    return PartitionerRef(path, arguments)


def _mapping(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused.of(Kind.SETTING, f"{value!r} is no table", place, f"write it as [{place}]", value=value)
    return dict(value)


def _starts(value: Any, place: str) -> dict[str, int]:
    findings: list[Finding] = []
    taken = {
        name: _taken(_number(OFFSET), inner, f"{place}.{name}", findings)
        for name, inner in _mapping(value, place).items()
    }
    refuse(findings)
    return taken


def _table(parsers: Mapping[str, Parser]) -> Parser:
    """A parser of tables with these keys, all optional."""

    def parse(value: Any, place: str) -> dict[str, Any]:
        findings: list[Finding] = []
        taken = {}
        for key, inner in _mapping(value, place).items():
            at = f"{place}.{key}" if place else key
            if key in parsers:
                taken[key] = _taken(parsers[key], inner, at, findings)
            else:
                what = f"unknown key {key!r}"
                findings.append(Finding.of(Kind.SETTING, what, at, f"use {', '.join(parsers)}", key=key))
        refuse(findings)
        return taken

    return parse


def _named(table: Parser) -> Parser:
    """A parser of tables keyed by names that the user chose."""

    def parse(value: Any, place: str) -> dict[str, Any]:
        taken: dict[str, Any] = _table(dict.fromkeys(_mapping(value, place), table))(value, place)
        return taken

    return parse


def _texts(value: Any, place: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Refused.of(Kind.SETTING, f"{value!r} is no list", place, "write the names in brackets", value=value)
    return tuple(_text(inner, place) for inner in value)


def _expectations(value: Any, place: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        what, then = f"{value!r} is no list", f"write each as a table [[{place}]]"
        raise Refused.of(Kind.SETTING, what, place, then, value=value)
    findings: list[Finding] = []
    taken = tuple(_taken(_expectation, inner, place, findings) for inner in value)
    refuse(findings)
    return taken


def _expectation(value: Any, place: str) -> str:
    stated = _EXPECTATION(value, place)
    if "type" not in stated:
        what, then = "an expectation has no type", 'write type = "expect_…", as Great Expectations names it'
        raise Refused.of(Kind.SETTING, what, place, then, value=value)
    return as_text(stated)


def _severity(value: Any, place: str) -> str:
    if (severity := _text(value, place)) not in ("error", "warning"):
        what, then = f"there is no severity {severity!r}", 'use "error" or "warning"'
        raise Refused.of(Kind.SETTING, what, place, then, value=value)
    return severity


_EXPECTATION = _table({"type": _text, "kwargs": _mapping, "severity": _severity, "description": _text})
_STAGE: Mapping[str, Parser] = {"scheme": _scheme, "partitioner": _partitioner}
_FILE = _table(
    {
        "scheme": _scheme,
        "groups": _number(GROUPS),
        "grouper": _text,
        "limit": _number(RECORDS),
        "starts": _starts,
        "begin_anew": _texts,
        "go_on": _texts,
        "take_away": _texts,
        "offenders": _number(OFFENDERS),
        "hot_keys": _hot_keys,
        "far_fewer": _table({"rows": _number(ROWS), "percent": _number(PERCENT)}),
        "stages": _named(_table(_STAGE)),
        "steps": _named(_table({**_STAGE, "fan_in": _number(FAN_IN)})),
        "tables": _named(_table({"expect": _expectations})),
    }
)


def _by_name(tables: Mapping[str, Mapping[str, Any]], key: str) -> dict[str, Any]:
    return {name: table[key] for name, table in tables.items() if key in table}
