"""Pipelines: a small logical graph of streams, steps and result tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from inspect import getdoc
from os import PathLike, fspath
from typing import Any, Unpack

from partitioning.authoring.arguments import checked
from partitioning.authoring.declared import Declared, stream_of
from partitioning.authoring.flow import Flow
from partitioning.authoring.settings import PartitionerRef
from partitioning.authoring.step_output import StepOutput
from partitioning.authoring.step_rules import kept_change
from partitioning.errors import Finding, Refused, noting, refuse
from partitioning.imports import import_path
from partitioning.kinds import Kind
from partitioning.model.graph import ColumnComment, Graph, Op, Step, Write
from partitioning.model.key_schemas import Framing
from partitioning.model.meaning import Meaning, of_step, of_stream
from partitioning.model.measures import as_text, merged
from partitioning.model.offsets import check_name
from partitioning.model.placement import JSON, hash_schema
from partitioning.model.private import private_names
from partitioning.model.root_names import is_others
from partitioning.model.schemes import Scheme
from partitioning.model.sources import LandedSource, address_of, source_of
from partitioning.model.streams import DELETED, DENSE, SPARSE, ChangeForm, Format, Stream
from partitioning.model.table_mode import Mode, Updates
from partitioning.values import replace

# The position in a stream is kept under the stream's name, which is that of its folder.
_DECLARE_ONCE = (
    "declare it once, any number of steps may follow it; to read it batch by batch and whole as well, "
    "land it a second time under another name"
)


@checked
class Pipeline:
    """A named logical graph. Step names come from the user or from the step's input, never from a counter.

    >>> pipeline = Pipeline("delays", source="s3://landing/topics")
    >>> flights = pipeline.stream("flights", key="tailnum", partitions=12)
    >>> flights.filter("dep_delay > 0").aggregate("count(*) AS late").write("delays")
    >>> [step.name for step in pipeline.steps]
    ['flights.filter', 'flights.filter.aggregate']
    """

    def __init__(
        self,
        name: str,
        *,
        source: str | PathLike[str] = "",
        scheme: str | None = None,
        schemes: Mapping[str, str] | None = None,
        partitioners: Mapping[str, PartitionerRef | str] | None = None,
        owner: str = "",
    ) -> None:
        """`source` is the default source of the streams: `s3://…`, `kafka://…` or a folder's path.

        `scheme` applies to all stages. `schemes` and `partitioners` apply to one, by its name or that of a step in it.
        A batch's settings override them. `owner` is whom messages name if the pipeline fails; plans do not.
        Raises Refused, with all findings.
        """
        findings = [finding] if (finding := is_others(name)) else []
        self.owner = owner
        self.source = address_of(fspath(source))
        self.schemes, self.partitioners = dict[str, Scheme](), dict(partitioners or {})
        with noting(findings):
            self.name = check_name(name, "pipeline")
        with noting(findings):
            self.scheme = Scheme.parse(scheme) if scheme else None
        for step, text in (schemes or {}).items():
            with noting(findings):
                self.schemes[step] = Scheme.parse(text)
        for step, named in self.partitioners.items():
            with noting(findings):
                import_path(named.path if isinstance(named, PartitionerRef) else named, f"partitioner of {step!r}")
        refuse(findings)
        self._streams: dict[str, Stream] = {}
        self._steps: dict[str, Step] = {}
        self._flows: dict[str, Flow] = {}
        self._meanings: dict[str, Meaning] = {}
        self._writes: dict[str, Write] = {}

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The inputs, in declared order."""
        return tuple(self._streams.values())

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in declared order: each after its inputs. It is no step to take rows as records for a table."""
        read = {name for step in self._steps.values() for name in step.inputs} | {each.step for each in self.writes}
        return tuple(step for step in self._steps.values() if step.op is not Op.TO_STREAM or step.name in read)

    @property
    def private(self) -> frozenset[str]:
        """The names of all columns whose values are private, in small letters."""
        return private_names(self.streams, self.steps)

    @property
    def writes(self) -> tuple[Write, ...]:
        """The result tables, in declared order."""
        return tuple(self._writes.values())

    def with_topics_of(self, then: Iterable[Stream]) -> Pipeline:
        """The same pipeline with the partition counts of these streams, and the schemas of their keys in a registry: as
        topics were once."""
        before = {stream.name: stream for stream in then}
        return self.with_streams(lambda now: _as_topic_was(now, before[now.name]) if now.name in before else now)

    def with_streams(self, change: Callable[[Stream], Stream]) -> Pipeline:
        """The same pipeline with other declarations of its streams, made by `change`; names and keys stay."""
        other = copy(self)
        other._streams = {name: change(stream) for name, stream in self._streams.items()}
        return other

    def up_to(self, name: str, table: str) -> Pipeline:
        """The same pipeline up to a stream or step, whose rows it appends to a result table; it writes no other, and is
        planned by default. Raises Refused as `flow`."""
        key, needed = self.flow(name).key, self._declared.above(name)
        other = copy(self)
        other.scheme, other.schemes, other.partitioners = None, {}, {}
        other._streams = {each: stream for each, stream in self._streams.items() if each in needed}
        other._steps = {each: step for each, step in self._steps.items() if each in needed}
        other._writes = {table: Write(table, name, key, lineage=False, expectations=())}
        return other

    def expecting(self, added: Mapping[str, Sequence[str]]) -> Pipeline:
        """The same pipeline with these expectations too, by table, as JSON text. Raises Refused for unknown tables."""
        there_are = f"there are: {', '.join(self._writes)}"
        refuse(
            Finding.of(Kind.NAME, f"there is no table {table!r}", "tables, in settings", there_are, table=table)
            for table in sorted(added.keys() - self._writes.keys())
        )
        other = copy(self)
        other._writes = {
            table: replace(write, expectations=tuple(merged(write.expectations, added[table])))
            if table in added
            else write
            for table, write in self._writes.items()
        }
        return other

    @property
    def graph(self) -> Graph:
        """Streams, steps and writes as one value."""
        return Graph(self.streams, self.steps, self.writes)

    def stream(self, name: str, *, key: str | Sequence[str], partitions: int, **declared: Unpack[Declared]) -> Flow:
        """Declare an input whose new records each batch reads once: a topic, landed or in a broker.

        `key` is the column by which its producers place records in one of its `partitions`, or several columns.

        >>> pipeline = Pipeline("delays", source="s3://landing/topics")
        >>> pipeline.stream("flights", key="tailnum", partitions=12, null_keys="drop").key
        'tailnum'
        """
        return self._declare(stream_of(name, key, partitions, self.source, table=False, **declared))

    def table(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        partitions: int,
        deletes: str | None = None,
        kept: bool = False,
        **declared: Unpack[Declared],
    ) -> Flow:
        """Declare an input of which only the latest record of each key counts. If the SQL condition `deletes` is true
        of it, the key has none.

        Each batch reads it whole, or, if it is `kept`, only what is new: the rest is state of the step `<name>.kept`.

        >>> pipeline = Pipeline("delays", source="s3://landing/topics")
        >>> pipeline.table("planes", key="tailnum", partitions=8, deletes="year IS NULL").step
        'planes.filter'
        """
        stream = stream_of(name, key, partitions, self.source, table=True, kept=kept, **declared)
        flow = self._declare(stream)
        return flow._as_table(stream, deletes, flow.alias)

    def cdc(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        partitions: int,
        unwrapped: bool = False,
        **declared: Unpack[Declared],
    ) -> Flow:
        """Declare a topic of Debezium's change events. The flow is the source's table: the latest row of each primary
        key, none of one that was deleted. Its rows are kept from batch to batch, as those of a `kept` table.

        `key` is the primary key. `columns` are those of the table that are of interest, with the types that its
        database has for them, by DuckDB's names; SQL calls the table as the name ends, `customers` of
        `shop.public.customers`. Records are envelopes, or were `unwrapped` by ExtractNewRecordState with
        `delete.tombstone.handling.mode=rewrite`. As sinks leave tombstones out, offsets of what has landed are sparse
        unless said otherwise.

        >>> pipeline = Pipeline("shop", source="s3://landing/topics")
        >>> columns = {"id": "BIGINT", "name": "VARCHAR"}
        >>> pipeline.cdc("shop.public.customers", key="id", partitions=6, columns=columns).step
        'shop.public.customers.kept'
        """
        is_landed = isinstance(source_of(fspath(declared.get("source") or self.source)), LandedSource)
        usual: Declared = {"format": Format.JSON, "key_format": "json", "offsets": SPARSE if is_landed else DENSE}
        declared = {**usual, **declared}
        if isinstance(key, str) and declared["key_format"] in (JSON, *Framing):
            key = (key,)
        form, columns = ChangeForm.UNWRAPPED if unwrapped else ChangeForm.ENVELOPE, declared.get("columns")
        if columns and DELETED not in columns:
            declared["columns"] = {**columns, DELETED: "BOOLEAN"}
        stream = stream_of(name, key, partitions, self.source, table=True, kept=True, changes=form, **declared)
        return self._declare(stream)._as_table(stream, None, name.rpartition(".")[2])

    def flow(self, name: str) -> Flow:
        """The flow of the stream or step of that name. Raises Refused, with the known names, if there is none."""
        if name not in self._flows:
            listed = ", ".join(self._flows) or "none yet"
            what = f"there is no stream or step {name!r}"
            raise Refused.of(Kind.NAME, what, f"pipeline {self.name!r}", f"there are: {listed}", name=name)
        return self._flows[name]

    def has(self, name: str) -> bool:
        """Whether there is a stream or step of that name."""
        return name in self._flows

    def step_of(self, name: str) -> Step | None:
        """The step of that name, if there is one."""
        return self._steps.get(name)

    def meaning_of(self, name: str) -> Meaning:
        """What the rows of a stream or step are."""
        return self._meanings[name]

    def streams_of(self, name: str) -> tuple[Stream, ...]:
        """The streams that a stream or step comes from."""
        above = self._declared.above(name)
        return tuple(stream for stream in self.streams if stream.name in above)

    @property
    def _declared(self) -> Graph:
        """All that is declared, also steps that nothing reads."""
        return Graph(self.streams, tuple(self._steps.values()), self.writes)

    def changed(
        self,
        step: str,
        *,
        was: str = "",
        begins: Mapping[str, object] | None = None,
        migrate: Mapping[str, str] | str | Callable[..., Any] | None = None,
        anew: str = "",
    ) -> None:
        """Say what becomes of what a step kept before it was changed. The batch that is planned next does it, once.

        The step goes on from what the step `was` called kept. New columns of the rows that it kept begin with the
        values in `begins`, by column; a text there is an SQL expression over the columns kept before. `migrate` has
        such expressions for any columns, or is a function from the table of old rows to that of new ones: all rows are
        then written again, each under its key. With `anew`, the reason why, the step begins with nothing.

        Raises Refused, with all findings, if there is no such step that keeps something.
        """
        declared = kept_change(self.steps, step, was, begins or {}, migrate, anew)
        before = self._steps[step]
        assert before.state
        if before.state.changed:
            what, then = "it says twice what becomes of what it kept", "say all in one call: was=, begins=, migrate="
            raise Refused.of(Kind.DECLARATION, what, f"change of step {step!r}", then, step=step)
        self._steps[step] = replace(before, state=replace(before.state, changed=declared))

    def _declare(self, stream: Stream) -> Flow:
        flow = Flow(self, stream.name, stream.name, stream.key, stream.key_format)
        self._once(flow)
        self._streams[stream.name] = stream
        self._meanings[stream.name] = of_stream(stream)
        return flow

    def _add(self, step: Step, flow: StepOutput) -> None:
        check_name(step.name, "step")
        self._once(flow)
        self._steps[step.name] = step
        self._meanings[step.name] = of_step(step, [self._meanings[name] for name in step.inputs], self._steps)

    def _write(
        self,
        table: str,
        flow: StepOutput,
        lineage: bool,
        expect: tuple[Mapping[str, Any], ...],
        mode: Mode,
        comment: str,
        comments: tuple[ColumnComment, ...],
        updates: Updates,
    ) -> None:
        try:
            expectations = tuple(as_text(dict(one)) for one in expect)
        except (TypeError, ValueError) as error:
            what, then = f"an expectation is no plain data: {error}", "write it as JSON has it"
            raise Refused.of(Kind.DECLARATION, what, f"table {table!r}", then, table=table) from error
        self._writes[table] = Write(table, flow.step, flow.key, lineage, expectations, mode, comment, comments, updates)

    def _once(self, flow: StepOutput) -> None:
        # SQL does not distinguish names by case.
        if flow.step.lower() in {name.lower() for name in self._flows}:
            what = f"two streams or steps are named {flow.step!r}"
            then = _DECLARE_ONCE if flow.step in self._streams else "give one of them another name="
            raise Refused.of(Kind.NAME, what, f"pipeline {self.name!r}", then, step=flow.step)
        assert isinstance(flow, Flow)
        self._flows[flow.step] = flow


for _declares in (Pipeline.stream, Pipeline.table, Pipeline.cdc):
    # `help` shows the type of the options by its name alone.
    _declares.__doc__ = f"{getdoc(_declares)}\n\n{getdoc(Declared)}"


def _as_topic_was(now: Stream, then: Stream) -> Stream:
    framed = now.key == then.key and hash_schema(now.hash) and hash_schema(then.hash)
    return replace(now, partitions=then.partitions, hash=then.hash if framed else now.hash)
