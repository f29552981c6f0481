"""Key check: whether the columns of keys are there, and of types that keys can have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_parts, kind
from partitioning.model.graph import Step
from partitioning.model.placement import KeyFormat
from partitioning.model.streams import Column
from spark_jobs.sql.relation_columns import KnownRelations


def unfit_keys(step: Step, columns: Sequence[Column], known: KnownRelations) -> list[Finding]:
    """Why a step with these columns cannot have its key: a new one is not there or does not fit its format; or, if it
    has one of several columns, these cannot be parts of one, or are of other kinds in some of its inputs."""
    new = [*_unfit_new_key(step, columns, known)] if step.rekeys or step.function else []
    return new or ([*_unfit_parts(step, columns), *_unlike_parts(step, known)] if key_parts(step.key) else [])


def unfit_state_key(step: Step, columns: Sequence[Column], known: KnownRelations) -> Iterator[Finding]:
    """Why the declared state of a function cannot have the key of its input."""
    flow = known.pipeline.flow(step.inputs[0])
    return _unfit(step, columns, flow.key, flow.key_format, " in state")


def _unfit_new_key(step: Step, columns: Sequence[Column], known: KnownRelations) -> Iterator[Finding]:
    if step.key:
        yield from _unfit(step, columns, step.key, step.key_format, f"; {known.listed(step.inputs)}")


def _unfit_parts(step: Step, columns: Sequence[Column]) -> Iterator[Finding]:
    types = {column.name: column.type for column in columns}
    for column in key_parts(step.key) if step.rekeys or step.function else ():
        if types.get(column) is None or kind(types[column]) is None:
            said = types.get(column, "missing")
            what = f"key column {column!r} is {said}, which no key of several columns can have"
            then = "cast it before: to VARCHAR, a whole number, DECIMAL, DATE or TIMESTAMP"
            yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, _where(step), then, column=column, type=types.get(column))


def _unlike_parts(step: Step, known: KnownRelations) -> Iterator[Finding]:
    keys = {name: key_parts(known.pipeline.flow(name).key) for name in step.inputs} if step.keyed else {}
    for number in range(len(key_parts(step.key)) if all(keys.values()) and len(keys) > 1 else 0):
        met = {name: known.type(name, key[number]) for name, key in keys.items()}
        if len({kind(each) for each in met.values()}) > 1:
            listed = ", ".join(f"{keys[name][number]} of {name} is {each}" for name, each in met.items())
            what, then = f"key columns of different types would never meet: {listed}", "cast one of them before"
            yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, _where(step), then, listed=listed)


def _unfit(step: Step, columns: Sequence[Column], key: str, form: KeyFormat, listed: str) -> Iterator[Finding]:
    kind = {column.name: column.type for column in columns}.get(key)
    wanted = " or ".join(form.column_types)
    if kind in form.column_types:
        return
    if kind is None:
        what, then = f"there is no column {key!r}", f"correct the name{listed}"
    else:
        what = f"key column {key!r} is {kind}, not {wanted} under key format {form.value!r}"
        fitting = " or ".join(f"key_format={each.value!r}" for each in KeyFormat if kind in each.column_types)
        then = f"cast it, or declare {fitting}" if fitting else "cast it"
    values = {"key": key, "kind": kind, "wanted": wanted, "value": form.value}
    yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, _where(step), then, **values)


def _where(step: Step) -> str:
    return f"step {step.name!r}"
