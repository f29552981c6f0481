"""Commands: what a finding says to run next, as values; the words are those of where they are shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from partitioning.values import Value

# The reason, which only the reader knows.
_WHY = "--why '…'"
_BACKFILL = re.compile(r"(.+)\.backfill-([0-9]+)")


def backfill_of(name: str) -> tuple[str, int] | None:
    """The pipeline and the number of the backfill that has this name; None if it is a pipeline's own.

    >>> backfill_of("shop.backfill-3"), backfill_of("shop")
    (('shop', 3), None)
    """
    match = _BACKFILL.fullmatch(name)
    return (match[1], int(match[2])) if match else None


class _Command(Value, frozen=True, tag_field="command"):
    """A command: its verb is its tag unless it says otherwise.

    Its `form` has the words that follow, each a field, perhaps behind an option; what names no field is as it is.
    Without one, each field is an option of its name.
    """

    form: ClassVar[tuple[str, ...]] = ()

    @property
    def verb(self) -> str:
        """The word after `coset`."""
        return str(self.__struct_config__.tag)

    @property
    def words(self) -> Iterable[str]:
        """What follows, an option as one word with its value. Options without a value are left out."""
        fields = asdict(self)
        for said in self.form or [f"--{name.replace('_', '-')} {name}" for name in fields if name != "pipeline"]:
            option, _, name = said.rpartition(" ")
            held = fields.get(name)
            for value in held if isinstance(held, tuple) else (held,):
                given = _given({option: shlex.quote(value) if isinstance(value, str) and value else value})
                yield from [said] if name not in fields else (word.lstrip() for word in given)

    @property
    def in_airflow(self) -> str | None:
        """How to do the same in Airflow, if Airflow can."""
        return None


class _OfPipeline(_Command, frozen=True):
    """A command whose first argument is a pipeline."""

    pipeline: str


class _OfOneBackfill(_OfPipeline, frozen=True):
    """A command that names a backfill of a pipeline by its number."""

    number: int
    form: ClassVar[tuple[str, ...]] = ("number",)


class Repeat(_Command, frozen=True, tag="repeat"):
    """Run the same command again."""

    in_airflow = "clear the failed task"


class Run(_OfPipeline, frozen=True, tag="run"):
    """Continue the open batch of a pipeline or backfill, with `again` even if the batch waits."""

    again: bool = False

    @property
    def in_airflow(self) -> str | None:
        return _started(self.pipeline, {}, ["Again"] if self.again else [])


class Replan(_OfPipeline, frozen=True, tag="replan"):
    """Give up the open batch and plan its records again. A backfill is given up and must be asked for again.

    `repaired` says that the files of a backfill were changed on purpose. The new plan may `take_away` rows of these
    tables and steps.
    """

    repaired: bool = False
    take_away: tuple[str, ...] | UnsetType = UNSET
    form = ("--take-away take_away", _WHY)

    @property
    def beyond(self) -> str:
        """What the user must do beside the command."""
        if backfill_of(self.pipeline) is None:
            return ""
        return f" and ask for the backfill again{', with `--input repaired`' if self.repaired else ''}"


class PlanAsking(_OfPipeline, frozen=True, tag="plan"):
    """Plan the next batch so that a step begins anew, a step continues although something before it changed, or the
    rows of a table or step may be taken away."""

    begin_anew: str = ""
    go_on: str = ""
    take_away: str | UnsetType = UNSET

    @property
    def in_airflow(self) -> str | None:
        fields = {"Begin anew": self.begin_anew, "Go on": self.go_on, "Take away": self.take_away}
        return _started(self.pipeline, fields)


class Restore(_OfPipeline, frozen=True, tag="restore"):
    """Compute lost state of a pipeline again."""


class HandOver(_Command, frozen=True, tag="hand-over"):
    """Give a result table to a pipeline; `before` is its owner, if it has one."""

    table: str
    before: str | None
    to: str
    form = ("table", "--from before", "--to to", _WHY)


class AcceptChanges(_Command, frozen=True, tag="accept-changes"):
    """Accept what others did to a result table, up to this version of it."""

    table: str
    version: int
    form = ("table", "--up-to version", _WHY)


class MoveTables(_Command, frozen=True, tag="move-tables"):
    """Let all tables of the store lie at another address, to which they were copied."""

    to: str
    form = ("to", _WHY)


class Status(_OfPipeline, frozen=True, tag="status"):
    """Show where a pipeline or its backfills stand."""


class Report(_OfPipeline, frozen=True, tag="report"):
    """Show what became of a batch of a pipeline."""

    batch: int


class Records(_OfPipeline, frozen=True, tag="records"):
    """The records and rows of a batch of a pipeline's own that do not meet an expectation; or its records that were
    `set_aside`."""

    batch: int
    set_aside: bool = False

    @property
    def words(self) -> Iterable[str]:
        return [f"--batch {self.batch}", "--set-aside" if self.set_aside else "--offenders"]


class Backfills(_OfPipeline, frozen=True, tag="backfills"):
    """List the backfills of a pipeline, or show the comparison of one."""

    number: int | None = None
    form = ("number",)


class BackfillAsking(_OfPipeline, frozen=True, tag="backfill"):
    """Run batches again: from `first` to `last`, or `first` alone, or with `cascade` all later ones too. Without a
    `first` the reader chooses. A step begins anew, or goes on although something before it changed."""

    first: int | None
    last: int | None = None
    cascade: bool = False
    repaired: bool = False
    begin_anew: str | UnsetType = UNSET
    go_on: str | UnsetType = UNSET

    @property
    def words(self) -> Iterable[str]:
        return _given(
            {
                "--from": "N" if self.first is None else self.first,
                "--to": None if self.last == self.first else self.last,
                "--cascade": self.cascade,
                "--input": "repaired" if self.repaired else None,
                "--begin-anew": self.begin_anew,
                "--go-on": self.go_on,
            }
        )

    @property
    def in_airflow(self) -> str | None:
        last = "the newest" if self.cascade else self.first if self.last is None else self.last
        range_ = {"From batch": self.first, "To batch": None if self.first is None else last}
        fields = {**range_, "Begin anew": self.begin_anew, "Go on": self.go_on}
        return _started(f"{self.pipeline}_backfill", fields, ["Repaired input"] if self.repaired else [])


class Resume(_OfOneBackfill, frozen=True, tag="resume"):
    """Continue a backfill where it stopped."""

    verb, form = "backfill", ("--resume number",)

    @property
    def in_airflow(self) -> str | None:
        return _started(f"{self.pipeline}_backfill", {"Backfill": self.number})


class Cancel(_OfOneBackfill, frozen=True, tag="cancel"):
    """Give up a backfill."""

    verb, form = "backfill", ("--cancel number",)


class SwapAsking(_OfOneBackfill, frozen=True, tag="swap"):
    """Put a backfill in place, approved by the digest of its comparison."""

    approved: str
    in_airflow = "clear the task compare, which asks for approval"
    form = ("number", "--approve approved")


class Undo(_OfOneBackfill, frozen=True, tag="undo"):
    """Take back a backfill."""

    @property
    def in_airflow(self) -> str | None:
        return _started(f"{self.pipeline}_undo", {"Backfill": self.number})


class Forget(_OfPipeline, frozen=True, tag="forget"):
    """Forget how far a pipeline has read a stream or a partition of it. With `keep_offsets` it forgets only what was
    read, not how far."""

    stream: str
    partition: int | None = None
    keep_offsets: bool = False
    form = ("stream", "--partition partition", "--keep-offsets keep_offsets", _WHY)


class Land(_Command, frozen=True, tag="land"):
    """Land rows of the reader's own in a stream, of a pipeline and a file that the reader knows."""

    stream: str
    form = ("PIPELINE", "stream", "FILE")


class Inspect(_Command, frozen=True, tag="inspect"):
    """Look at what has landed of a topic, by the address of its folder."""

    address: str
    form = ("address",)


class VerifyAsking(_OfPipeline, frozen=True, tag="verify"):
    """Hold the result tables of a pipeline against their queries, or one of them, or a sample of its keys; as they are
    now, or as a batch published them."""

    table: str = ""
    as_of: int | None = None
    sample: str = ""

    @property
    def in_airflow(self) -> str | None:
        return _started(f"{self.pipeline}_verify", {"Sample": self.sample}) if self.as_of is None else None


class Iceberg(_OfPipeline, frozen=True, tag="iceberg"):
    """Take the Iceberg tables of a pipeline to what its tables are."""


_OfPipelines = Run | Replan | PlanAsking | Restore | Status | Report | Records | Forget | VerifyAsking | Iceberg
_OfBackfills = Backfills | BackfillAsking | Resume | Cancel | SwapAsking | Undo
Command = Repeat | _OfPipelines | _OfBackfills | HandOver | AcceptChanges | MoveTables | Land | Inspect

# Advice in words, a command, or several of these one after the other.
Then = str | Command | tuple[str | Command, ...]


def _given(options: Mapping[str, object]) -> Iterator[str]:
    """The options that have a value; one that is true is a flag."""
    for name, value in options.items():
        if value is not False and value not in ("", None, UNSET):
            yield name if value is True else f"{name} {value}"


def _started(dag: str, fields: Mapping[str, object], ticked: Iterable[str] = ()) -> str:
    """How a DAG is started by its form, with these fields that have a value."""
    words = " and ".join([*_given(fields), *ticked])
    return f"start the DAG {dag}{f', with {words}' if words else ''}"


class Option(Value, frozen=True):
    """An option by its name, with its values; none if it is a flag. One that is `repeatable` stands beside those of the
    same name that a command has already. One that is `own` is about what a command begins, and not about what goes on.
    """

    name: str
    values: tuple[str, ...] = ()
    repeatable: bool = False
    own: bool = False

    def words(self, beside: Sequence[str] = ()) -> Iterator[str]:
        """The words of a command line that are not there already.

        >>> list(Option("--scheme", ("a=max", "tasks(4)"), True).words(["--scheme a=max", "--again"]))
        ["--scheme 'tasks(4)'"]
        >>> list(Option("--store", ("trial",)).words(["--store other"])), list(Option("--again").words())
        ([], ['--again'])
        """
        if not self.repeatable and any(word.partition(" ")[0] == self.name for word in beside):
            return
        said = [f"{self.name} {shlex.quote(value)}" for value in self.values] or [self.name]
        yield from (each for each in said if each not in beside)


class Shown(Value, frozen=True):
    """The place where advice is shown: the names that pipelines have there (`named`), whether Airflow shows it, and by
    the verb of a command which options it needs there to act where and how the command before it did (`given`)."""

    named: Mapping[str, str] = {}
    airflow: bool = False
    given: Mapping[str, tuple[Option, ...]] = {}

    def says(self, then: Then) -> str:
        """Advice in words.

        >>> Shown().says(("correct it, then ", Replan("late")))
        "correct it, then `coset replan late --why '…'`"
        >>> Shown(named={"late": "late.py"}).says(Status("late"))
        '`coset status late.py`'
        """
        if isinstance(then, tuple):
            return "".join(self.says(part) for part in then)
        if isinstance(then, str):
            return then
        line, in_airflow = self.line(then), _of_backfill(then).in_airflow if self.airflow else None
        if line is None:
            return in_airflow or "run the same command again"
        beyond = then.beyond if isinstance(then, Replan) else ""
        return f"`{line}`{beyond}" if in_airflow is None else f"{in_airflow} (`{line}`)"

    def line(self, command: Command, *fixed: Option) -> str | None:
        """A command as a terminal takes it, with the options that it has, those that are `fixed`, and those that it
        needs there; None if only its reader knows it.

        >>> there = Shown(given={"report": (Option("--env", ("prod",)), Option("--docs", ("pages",)))})
        >>> there.line(Report("late", 3), Option("--docs", ("mine",)))
        'coset report late --batch 3 --docs mine --env prod'
        """
        asked = _of_backfill(command)
        if isinstance(asked, Repeat):
            return None
        pipeline = [self.named.get(asked.pipeline, asked.pipeline)] if isinstance(asked, _OfPipeline) else []
        words = [asked.verb, *pipeline, *asked.words]
        goes_on = isinstance(asked, Resume | Cancel)
        for option in (*fixed, *(each for each in self.given.get(asked.verb, ()) if not (goes_on and each.own))):
            words += [*option.words(words)]
        return " ".join(["coset", *words])


def _of_backfill(command: Command) -> Command:
    """The command that does the same for a backfill, if the pipeline's name is one's."""
    match command:
        case Run(name) if of := backfill_of(name):
            return Resume(*of)
        case Replan(name) if of := backfill_of(name):
            return Cancel(*of)
        case Status(name) if of := backfill_of(name):
            return Backfills(of[0])
        case _:
            return command
