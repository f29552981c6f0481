"""Random lines of code: steps on flows of streams and tables, of which each line makes one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

# All flows have these columns, beside their key. No two records have one `i`.
VALUES = "a, b, n, t, i, d, c"
SUMS = (
    "min(a) AS a, max(b) AS b, sum(n)::BIGINT AS n, max(t) AS t, max(i) AS i, max(d) AS d, sum(c)::DECIMAL(18,2) AS c"
)
# Sums of decimals are exact.
CAST = 'cast={"c": "DECIMAL(18,2)"}'
# Also of tombstones.
DELETES = "n % 4 = 0 OR i IS NULL"


# The formats of keys that are no texts.
_FORMATS = {"m": "long", "y": "double", "(p, q)": "json"}


@dataclass(frozen=True)
class Made:
    """What is known of the flow that a line makes. It has one row for each key if it is `unique`; its rows come in the
    batch of their time `t`, and in no later one, if they are `prompt`."""

    key: str
    unique: bool = False
    prompt: bool = True
    timed: bool = True


class Writer:
    """Writes a pipeline, line by line. Lines that are refused are left out when they run."""

    def __init__(self, chance: random.Random, *, wide: bool = False) -> None:
        self._chance, self._wide = chance, wide
        # What meets lies in as many parts as divide all of these.
        self._counts = (1, 2, 4, 4, 6) if wide else (1, 2, 3, 4, 5)
        self._made: dict[str, Made] = {}

    def lines(self) -> Iterator[str]:
        chance = self._chance
        for number in range(chance.randint(1, 2)):
            nulls = ', null_keys="drop"' if chance.random() < 0.3 else ""
            self._made[name := f"s{number}"] = Made("k")
            nulls += ", late=timedelta(days=3)" if self._wide and chance.random() < 0.4 else ""
            said = f'"{name}", key="k", partitions={chance.choice(self._counts)}, source="s3://lake", {CAST}, time="t"'
            yield f"{name} = pipeline.stream({said}{nulls})"
        for number in range(chance.randint(0, 2)):
            deletes = f', deletes="{DELETES if self._wide else "n % 4 = 0"}"' if chance.random() < 0.6 else ""
            kept = ", kept=True" if chance.random() < 0.6 else ""
            self._made[name := f"u{number}"] = Made("k", unique=True, timed=False)
            if self._wide and chance.random() < 0.3:
                said = f'"{name}", key="k", key_format="string", partitions={chance.choice(self._counts)}, source="s3://lake"'
                yield f"{name} = pipeline.cdc({said}, columns={_COLUMNS})"
                continue
            said = f'"{name}", key="k", partitions={chance.choice(self._counts)}, source="s3://lake", {CAST}'
            yield f"{name} = pipeline.table({said}{deletes}{kept})"
        for number in range(chance.randint(2, 10)):
            # What was made last is followed most.
            one = chance.choice([*self._made, *list(self._made)[-2:]])
            if found := chance.choice(_WIDE if self._wide else _STEPS)(self, one, f"f{number}"):
                code, self._made[f"f{number}"] = found
                yield f"f{number} = {code}"

    def modes(self, name: str) -> Sequence[str]:
        """How the flow can be written: a table that is upserted has one row for each key."""
        return ("append", "replace", "upsert", "upsert") if self._made[name].unique else ("append", "replace")

    def other(self, one: str, *, same_key: bool = False, prompt: bool = False) -> str | None:
        key = self._made[one].key
        found = [
            name
            for name, made in self._made.items()
            if name != one
            and (not prompt or (made.prompt and made.timed))
            and (made.key == key if same_key else _FORMATS.get(made.key) == _FORMATS.get(key))
        ]
        return self._chance.choice(found) if found else None

    def of(self, name: str) -> Made:
        return self._made[name]

    def some(self, *words: str) -> str:
        return self._chance.choice(words)


# The code of a step and what it makes; None if it cannot follow.
Step = tuple[str, Made] | None


def _alone(code: str, **changes: bool | str) -> Callable[[Writer, str, str], Step]:
    """A step of one flow. Of words that are separated by bars one is chosen."""

    def written(writer: Writer, one: str, name: str) -> Step:
        said = re.sub(r"\[\[(.+?)\]\]", lambda match: writer.some(*match[1].split("|")), code)
        return f"{one}.{said.replace('NAME', name)}", _changed(writer.of(one), **changes)

    return written


def _changed(made: Made, **changes: bool | str) -> Made:
    return Made(**({"key": made.key, "unique": made.unique, "prompt": made.prompt, "timed": made.timed} | changes))  # type: ignore[arg-type]


def _rekeyed(writer: Writer, one: str, name: str) -> Step:
    key = writer.some(
        *({"x", "m", "(p, q)"} - {writer.of(one).key} and sorted({"x", "m", "(p, q)"} - {writer.of(one).key}))
    )
    code = {
        "x": f'rekey("x", sql="{writer.some("a", "b", "a || b")}", name="{name}r")',
        "m": f'rekey("m", sql="n % 5", key_format="long", name="{name}r")',
        "(p, q)": f'select("{VALUES}, a AS p, n % 3 AS q", name="{name}s").rekey(("p", "q"), name="{name}r")',
    }[key]
    made = _changed(writer.of(one), key=key, unique=False)
    return f'{one}.{code}.select("{VALUES}", name="{name}")', made


def _partial(writer: Writer, one: str, name: str) -> Step:
    key = writer.of(one).key
    by = f'by="{key}"' if key != "(p, q)" else 'by=("p", "q")'
    by += ', key_format="double"' * (key == "y")
    running = writer.some("", ", running=True", ", running=True")
    code = f'{one}.partial("{SUMS}", {by}, name="{name}p").combine("{SUMS}"{running}, name="{name}")'
    return (code, _changed(writer.of(one), unique=True)) if key != "m" else None


def _by(writer: Writer, one: str, name: str) -> Step:
    code = f'{one}.aggregate("{SUMS}", by="n % 2 AS odd", name="{name}g").select("{VALUES}", name="{name}")'
    return code, _changed(writer.of(one), unique=False)


def _of_both(writer: Writer, one: str, other: str, *, unique: bool) -> Made:
    both = writer.of(one), writer.of(other)
    return Made(both[0].key, unique, all(each.prompt for each in both), all(each.timed for each in both))


def _merged(writer: Writer, one: str, name: str) -> Step:
    if (other := writer.other(one, same_key=True)) is None:
        return None
    return f'{one}.merge({other}, name="{name}")', _of_both(writer, one, other, unique=False)


def _joined(writer: Writer, one: str, name: str) -> Step:
    if (other := writer.other(one)) is None:
        return None
    how, on = writer.some("inner", "left", "full"), writer.some("", "", f', on="{one}.n + {other}.n > 0"')
    unique = writer.of(one).unique and writer.of(other).unique
    code = f'{one}.join({other}, "{_pair(one, other)}", how="{how}"{on}, name="{name}")'
    # What a further condition keeps apart is given twice by a full join.
    return code, _of_both(writer, one, other, unique=unique and not (on and how == "full"))


def _pair(one: str, other: str) -> str:
    """The columns of a pair, also of one that lacks a side."""
    return (
        f"coalesce({one}.a, {other}.a) AS a, coalesce({other}.b, {one}.b) AS b, "
        f"coalesce({one}.n, 0) - coalesce({other}.n, 0) AS n, "
        f"coalesce(greatest({one}.t, {other}.t), {one}.t, {other}.t) AS t, "
        f"(coalesce({one}.i, 0) * 1009 + coalesce({other}.i, 0)) % 1000003 AS i, "
        f"coalesce({one}.d, {other}.d) AS d, (coalesce({one}.c, 0) - coalesce({other}.c, 0))::DECIMAL(18,2) AS c"
    )


def _cogrouped(writer: Writer, one: str, name: str) -> Step:
    if (other := writer.other(one)) is None:
        return None
    left, right = (
        "min(a) AS a, count(*) AS m, max(t) AS t, max(d) AS d",
        "max(b) AS b, sum(n)::BIGINT AS o, max(t) AS u, max(i) AS i, sum(c)::DECIMAL(18,2) AS c",
    )
    columns = "coalesce(a, '') AS a, coalesce(b, '') AS b, coalesce(m, 0) + coalesce(o, 0) AS n"
    columns += ", coalesce(greatest(t, u), t, u) AS t, coalesce(i, 0) AS i, d, c"
    both = f'{one}.cogroup("{left}", ({other}, "{right}"), name="{name}c")'
    return f'{both}.select("{columns}", name="{name}")', _of_both(writer, one, other, unique=True)


def _in_time(step: Callable[[Writer, str, str], Step]) -> Callable[[Writer, str, str], Step]:
    """A step that goes by times, which has to follow records that come in their order."""

    def written(writer: Writer, one: str, name: str) -> Step:
        made = writer.of(one)
        return step(writer, one, name) if made.prompt and made.timed else None

    return written


def _within(writer: Writer, one: str, name: str) -> Step:
    if (other := writer.other(one, prompt=True)) is None:
        return None
    how = writer.some("inner", "inner", "left", "full")
    said = f'times=("t", "t"), within=timedelta(minutes=90), how="{how}", name="{name}"'
    code = f'{one}.join_within({other}, "{_pair(one, other)}", {said})'
    return code, Made(writer.of(one).key, prompt=how == "inner")


def _as_of(writer: Writer, one: str, name: str) -> Step:
    if (other := writer.other(one, prompt=True)) is None:
        return None
    more = writer.some("", ', missing="drop"', ', deletes="n % 6 = 0"', ", wait=timedelta(minutes=30)")
    said = f'times=("t", "t"), keep=timedelta(days=1){more}, name="{name}"'
    return f'{one}.join_as_of({other}, "{_pair(one, other)}", {said})', Made(writer.of(one).key, prompt=False)


_EVERY = 'time="t", every=timedelta(hours=3)[[|, gap=timedelta(minutes=20)]], name="NAMEw"'
_WINDOWS = f'windows("{SUMS}", {_EVERY}).select("{VALUES}", name="NAME")'
_EXPIRED = 'latest("(t, i)", time="t", keep=timedelta(hours=[[3|30]]), name="NAMEl").expired(name="NAME")'
_STEPS: Sequence[Callable[[Writer, str, str], Step]] = (
    *[_alone('filter("n % 3 <> [[0|1|2]]", name="NAME")')] * 2,
    _alone('select("a, b, n + 1 AS n, t, i, d, c", name="NAME")'),
    _alone('select("b AS a, a AS b, -n AS n, t, i, -d AS d, -c AS c", name="NAME")'),
    _alone('repartition([[2|3]], name="NAME")'),
    _alone('to_stream(name="NAME")', unique=False),
    *[_alone('kept(name="NAME")', unique=False)] * 2,
    *[_alone('latest("[[n|(b, n)|(t, i)]]", name="NAME")', unique=True)] * 3,
    *[_alone(f'combine("{SUMS}", running=True, name="NAME")', unique=True)] * 2,
    *[_alone(f'aggregate("{SUMS}", name="NAME")', unique=True)] * 2,
    *[_rekeyed] * 2,
    _partial,
    _by,
    *[_merged] * 2,
    *[_joined] * 3,
    *[_cogrouped] * 2,
    _in_time(_alone('distinct("[[a|n]]", time="t", within=timedelta(hours=2), name="NAME")')),
    _in_time(_alone(_WINDOWS, unique=False, prompt=False)),
    _in_time(_alone('latest("(t, i)", time="t", keep=timedelta(hours=[[3|30]]), name="NAME")', unique=True)),
    _in_time(
        _alone(f'combine("{SUMS}", running=True, time="t", keep=timedelta(hours=[[3|30]]), name="NAME")', unique=True)
    ),
    _in_time(_alone(_EXPIRED, unique=False, prompt=False)),
    _in_time(_within),
    _in_time(_as_of),
)


def _totals(writer: Writer, one: str, name: str) -> Step:
    """Counts and sums, of which rows can be taken back."""
    sums = (
        "count(*) AS z1, sum(n::BIGINT)::BIGINT AS z2, count(a) AS z3, sum(c::DECIMAL(18,2)) AS z4, count(n + 1) AS z5"
    )
    shown = "'a' || z1 AS a, 'b' || z3 AS b, z2 AS n, TIMESTAMP '2026-11-01' AS t, z1 AS i, z5::DOUBLE AS d, "
    shown += "z4::DECIMAL(18,2) AS c"
    code = f'{one}.aggregate("{sums}", name="{name}g").select("{shown}", name="{name}")'
    return code, _changed(writer.of(one), unique=True, timed=False)


def _top(writer: Writer, one: str, name: str) -> Step:
    """The greatest two of each key."""
    best = "list_slice(list_reverse_sort(list({'n': n, 'i': i, 'a': a, 'b': b, 't': t, 'd': d, 'c': c})), 1, 2) AS z"
    code = f'{one}.aggregate("{best}", name="{name}g").select("unnest(z) AS z", name="{name}u")'
    return f'{code}.select("z.a, z.b, z.n, z.t, z.i, z.d, z.c", name="{name}")', _changed(writer.of(one), unique=False)


def _several(writer: Writer, one: str, name: str) -> Step:
    """A join of three."""
    others = [writer.other(one), writer.other(one)]
    if None in others or len({one, *others}) < 3:
        return None
    two, three = str(others[0]), str(others[1])
    how = writer.some("inner", "left", "full")
    columns = (
        f"coalesce({one}.a, {two}.a, {three}.a) AS a, coalesce({two}.b, {three}.b) AS b, "
        f"coalesce({one}.n, 0) + coalesce({three}.n, 0) AS n, coalesce({one}.t, {two}.t, {three}.t) AS t, "
        f"(coalesce({one}.i, 0) * 1009 + coalesce({two}.i, 0) * 31 + coalesce({three}.i, 0)) % 1000003 AS i, "
        f"coalesce({three}.d, {one}.d) AS d, coalesce({two}.c, {one}.c) AS c"
    )
    on = writer.some("", f', on="{one}.n + {three}.n > 0"')
    unique = all(writer.of(each).unique for each in (one, two, three)) and not (on and how == "full")
    code = f'{one}.join([{two}, {three}], "{columns}", how="{how}"{on}, name="{name}")'
    made = _of_both(writer, one, two, unique=unique)
    return code, _changed(made, prompt=False)


def _grouped(writer: Writer, one: str, name: str) -> Step:
    """A cogroup of three."""
    others = [writer.other(one), writer.other(one)]
    if None in others or len({one, *others}) < 3:
        return None
    two, three = str(others[0]), str(others[1])
    code = (
        f'{one}.cogroup("min(a) AS a, max(t) AS t", ({two}, "count(*) AS n, max(b) AS b, max(i) AS i"), '
        f'({three}, "max(d) AS d, sum(c)::DECIMAL(18,2) AS c"), name="{name}c").select("{VALUES}", name="{name}")'
    )
    return code, _changed(writer.of(one), unique=True, prompt=False, timed=False)


def _processed(writer: Writer, one: str, name: str) -> Step:
    key = writer.of(one).key
    if "(" in key:
        return None
    columns = {key: {"m": "BIGINT", "y": "DOUBLE"}.get(key, "VARCHAR")} | _COLUMNS
    whole = writer.some("", "", ", partitionable=False")
    code = f'{one}.process("tests.random_steps:twice", {columns}{whole}, name="{name}")'
    return code, writer.of(one)


def _again(writer: Writer, one: str, name: str) -> Step:
    """Under another key and back."""
    if writer.of(one).key != "k":
        return None
    code = f'{one}.rekey("{writer.some("a", "b")}", name="{name}r").filter("n % 3 IS DISTINCT FROM 1", name="{name}f")'
    back = f'.rekey("k", name="{name}k").select("{VALUES}", name="{name}")'
    return code + back, _changed(writer.of(one), unique=False)


def _whole(writer: Writer, one: str, name: str) -> Step:
    """One row of all, under a key of its own."""
    fan_in = writer.some("", ", fan_in=2")
    code = f'{one}.partial("{SUMS}", name="{name}p").combine("{SUMS}"{fan_in}, name="{name}q").rekey("x", sql="b"'
    return f'{code}, name="{name}r").select("{VALUES}", name="{name}")', _changed(writer.of(one), key="x", unique=False)


def _self_joined(writer: Writer, one: str, name: str) -> Step:
    """With a part of itself."""
    part, how = f'{one}.filter("n % 2 = 0", name="{name}e")', writer.some("inner", "left", "full")
    return f'{one}.join({part}, "{_pair(one, name + "e")}", how="{how}", name="{name}")', writer.of(one)


def _united(writer: Writer, one: str, name: str) -> Step:
    """Merged with a part of itself."""
    part = f'{one}.filter("n % 2 = 0", name="{name}e").select("b AS a, a AS b, n, t, i, d, c", name="{name}v")'
    return f'{one}.merge({part}, name="{name}")', _changed(writer.of(one), unique=False)


def _corrected(writer: Writer, one: str, name: str) -> Step:
    """Windows that are given again, of which the newest of each counts."""
    key = writer.of(one).key
    if "(" in key:
        return None
    said = 'time="t", every=timedelta(hours=3), late="correct", keep=timedelta(days=1)'
    code = f'{one}.windows("{SUMS}", {said}, name="{name}w").rekey(("{key}", "window_start"), name="{name}")'
    return code, Made("(k, w)", unique=True, prompt=False)


# A pipeline with all that steps keep.
KEPT = (
    f's0 = pipeline.stream("s0", key="k", partitions=6, source="s3://lake", {CAST}, time="t", late=timedelta(days=3))',
    f'u0 = pipeline.table("u0", key="k", partitions=3, source="s3://lake", {CAST}, deletes="{DELETES}", kept=True)',
    'f0 = s0.filter("n % 3 <> 0", name="f0")',
    'f1 = f0.latest("(t, i)", name="f1")',
    """f2 = f1.join(u0, "f1.n, f1.b, u0.i", how="left", name="f2").rekey("x", sql="coalesce(b, '')", name="f2r")""",
    'f3 = f2.aggregate("sum(n::BIGINT)::BIGINT AS n, count(i) AS i", name="f3")',
    f'f4 = f0.select("{VALUES}", name="f4v").combine("{SUMS}", running=True, name="f4")',
    f'f5 = f0.windows("{SUMS}", time="t", every=timedelta(hours=3), name="f5")',
    'f7 = f0.latest("(t, i)", time="t", keep=timedelta(hours=30), name="f7")',
    'f8 = f7.expired(name="f8")',
    'f1.write("t_f1", mode="upsert", updates="beside")',
    'f1.write("c_f1", mode="changelog")',
    'f3.write("t_f3", mode="upsert")',
    'f4.write("t_f4", mode="upsert", updates="beside")',
    'f5.write("t_f5")',
    'f7.write("t_f7", mode="upsert")',
    'f8.write("t_f8")',
)
_COLUMNS = {
    "a": "VARCHAR",
    "b": "VARCHAR",
    "n": "BIGINT",
    "t": "TIMESTAMP",
    "i": "BIGINT",
    "d": "DOUBLE",
    "c": "DECIMAL(18,2)",
}
_WIDE: Sequence[Callable[[Writer, str, str], Step]] = (
    *_STEPS,
    *[_alone('latest("[[n|d|c|(a, d)|t|(t, i)]]", name="NAME")', unique=True)] * 5,
    *[_alone('kept(name="NAME")', unique=False)] * 2,
    *[_rekeyed] * 4,
    *[_totals] * 4,
    *[_top] * 2,
    *[_several] * 2,
    *[_grouped] * 2,
    *[_processed] * 2,
    *[_again] * 2,
    *[_self_joined] * 2,
    *[_united] * 2,
    _whole,
    _corrected,
    *[
        _alone(
            f'rekey("y", sql="coalesce(d, 0.5)", key_format="double", name="NAMEr").select("{VALUES}", name="NAME")',
            unique=False,
            key="y",
        )
    ]
    * 2,
    _alone('select("a, b, unnest([n, n + 1]) AS n, t, i, d, c", name="NAME")', unique=False),
    _alone('filter("d > 1 OR c < 0.5", name="NAME")'),
    _alone(
        f'rekey("x", sql="[[a || n|b || (n % 2)|upper(a)]]", name="NAMEr").select("{VALUES}", name="NAME")',
        unique=False,
        key="x",
    ),
    _alone(
        f'aggregate("{SUMS}", by="[[a AS g|d AS g|(a, b) AS g]]", name="NAMEg").select("{VALUES}", name="NAME")',
        unique=False,
    ),
)


def twice(rows: pa.Table) -> pa.Table:
    """Rows whose number is twice as large, without some: as `AS_SQL`."""
    seven = pc.subtract(rows["n"], pc.multiply(pc.divide(rows["n"], 7), 7))
    kept = rows.filter(pc.fill_null(pc.not_equal(seven, 0), True))
    return kept.set_column(kept.schema.get_field_index("n"), "n", pc.multiply(kept["n"], 2))


TWICE = re.compile(r'SELECT \* FROM "tests\.random_steps:twice"\(("[^"]+")\)')
AS_SQL = r"SELECT * REPLACE (n * 2 AS n) FROM \1 WHERE n % 7 IS DISTINCT FROM 0"
