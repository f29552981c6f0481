"""Commands: what a finding says to run next, as values; the words are those of where they are shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from msgspec import UNSET, UnsetType

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


class Repeat(Value, frozen=True, tag="repeat", tag_field="command"):
    """Run the same command again."""


class Run(Value, frozen=True, tag="run", tag_field="command"):
    """Continue the open batch of a pipeline or backfill, with `again` even if the batch waits."""

    pipeline: str
    again: bool = False


class Replan(Value, frozen=True, tag="replan", tag_field="command"):
    """Give up the open batch and plan its records again. A backfill is given up and must be asked for again.

    `repaired` says that the files of a backfill were changed on purpose. The new plan may `take_away` rows of these
    tables and steps.
    """

    pipeline: str
    repaired: bool = False
    take_away: tuple[str, ...] | UnsetType = UNSET


class PlanAsking(Value, frozen=True, tag="plan", tag_field="command"):
    """Plan the next batch so that a step begins anew, a step continues although something before it changed, or the
    rows of a table or step may be taken away."""

    pipeline: str
    begin_anew: str = ""
    go_on: str = ""
    take_away: str | UnsetType = UNSET


class Restore(Value, frozen=True, tag="restore", tag_field="command"):
    """Compute lost state of a pipeline again."""

    pipeline: str


class HandOver(Value, frozen=True, tag="hand-over", tag_field="command"):
    """Give a result table to a pipeline; `before` is its owner, if it has one."""

    table: str
    before: str | None
    to: str


class AcceptChanges(Value, frozen=True, tag="accept-changes", tag_field="command"):
    """Accept what others did to a result table, up to this version of it."""

    table: str
    version: int


class MoveTables(Value, frozen=True, tag="move-tables", tag_field="command"):
    """Let all tables of the store lie at another address, to which they were copied."""

    to: str


class Status(Value, frozen=True, tag="status", tag_field="command"):
    """Show where a pipeline or its backfills stand."""

    pipeline: str


class Report(Value, frozen=True, tag="report", tag_field="command"):
    """Show what became of a batch of a pipeline."""

    pipeline: str
    batch: int


class Records(Value, frozen=True, tag="records", tag_field="command"):
    """The records and rows of a batch of a pipeline's own that do not meet an expectation; or its records that were
    `set_aside`."""

    pipeline: str
    batch: int
    set_aside: bool = False


class Backfills(Value, frozen=True, tag="backfills", tag_field="command"):
    """List the backfills of a pipeline, or show the comparison of one."""

    pipeline: str
    number: int | None = None


class BackfillAsking(Value, frozen=True, tag="backfill", tag_field="command"):
    """Run batches again: from `first` to `last`, or `first` alone, or with `cascade` all later ones too. Without a
    `first` the reader chooses. A step begins anew, or goes on although something before it changed."""

    pipeline: str
    first: int | None
    last: int | None = None
    cascade: bool = False
    repaired: bool = False
    begin_anew: str | UnsetType = UNSET
    go_on: str | UnsetType = UNSET


class Resume(Value, frozen=True, tag="resume", tag_field="command"):
    """Continue a backfill where it stopped."""

    pipeline: str
    number: int


class Cancel(Value, frozen=True, tag="cancel", tag_field="command"):
    """Give up a backfill."""

    pipeline: str
    number: int


class SwapAsking(Value, frozen=True, tag="swap", tag_field="command"):
    """Put a backfill in place, approved by the digest of its comparison."""

    pipeline: str
    number: int
    approved: str


class Undo(Value, frozen=True, tag="undo", tag_field="command"):
    """Take back a backfill."""

    pipeline: str
    number: int


class Forget(Value, frozen=True, tag="forget", tag_field="command"):
    """Forget how far a pipeline has read a stream or a partition of it. With `keep_offsets` it forgets only what was
    read, not how far."""

    pipeline: str
    stream: str
    partition: int | None = None
    keep_offsets: bool = False


class Land(Value, frozen=True, tag="land", tag_field="command"):
    """Land rows of the reader's own in a stream, of a pipeline and a file that the reader knows."""

    stream: str


class Inspect(Value, frozen=True, tag="inspect", tag_field="command"):
    """Look at what has landed of a topic, by the address of its folder."""

    address: str


class VerifyAsking(Value, frozen=True, tag="verify", tag_field="command"):
    """Hold the result tables of a pipeline against their queries, or one of them, or a sample of its keys; as they are
    now, or as a batch published them."""

    pipeline: str
    table: str = ""
    as_of: int | None = None
    sample: str = ""


# A backfill computes lost state again.
_OfBackfills = Backfills | BackfillAsking | Resume | Cancel | SwapAsking | Undo | Restore


class Iceberg(Value, frozen=True, tag="iceberg", tag_field="command"):
    """Take the Iceberg tables of a pipeline to what its tables are."""

    pipeline: str


_OfTables = HandOver | AcceptChanges | MoveTables
_OfStreams = Forget | Land | Inspect
_Looking = Status | Report | Records | VerifyAsking
Command = Repeat | Run | Replan | Iceberg | PlanAsking | _Looking | _OfStreams | _OfTables | _OfBackfills

# Advice in words, a command, or several of these one after the other.
Then = str | Command | tuple[str | Command, ...]


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
        line, in_airflow = self.line(then), _in_airflow(then) if self.airflow else None
        if line is None:
            return in_airflow or "run the same command again"
        return f"`{line}`{_beyond(then)}" if in_airflow is None else f"{in_airflow} (`{line}`)"

    def line(self, command: Command, *fixed: Option) -> str | None:
        """A command as a terminal takes it, with the options that it has, those that are `fixed`, and those that it
        needs there; None if only its reader knows it.

        >>> there = Shown(given={"report": (Option("--env", ("prod",)), Option("--docs", ("pages",)))})
        >>> there.line(Report("late", 3), Option("--docs", ("mine",)))
        'coset report late --batch 3 --docs mine --env prod'
        """
        words = self._words(command)
        if words is None:
            return None
        goes_on = isinstance(_of_backfill(command), Resume | Cancel)
        for option in (*fixed, *(each for each in self.given.get(words[0], ()) if not (goes_on and each.own))):
            words += [*option.words(words)]
        return " ".join(["coset", *words])

    def _words(self, command: Command) -> list[str] | None:
        """The verb, and what the command itself says; an option is one word with its value."""
        asked = _of_backfill(command)
        match asked:
            case Repeat():
                return None
            case Run(pipeline, again):
                return self._line("run", pipeline, "--again" if again else "")
            case Replan(pipeline, _, away):
                return self._line("replan", pipeline, *_taking(away), _WHY)
            case PlanAsking(name, begin_anew, go_on, take_away):
                asked_for = {"--begin-anew": begin_anew, "--go-on": go_on, "--take-away": take_away}
                return self._line("plan", name, *(f"{option} {step}" for option, step in asked_for.items() if step))
            case Iceberg(pipeline):
                return self._line("iceberg", pipeline)
            case HandOver() | AcceptChanges() | MoveTables():
                return _about_table(asked)
            case Status() | Report() | Records() | VerifyAsking():
                return self._looking(asked)
            case Forget() | Land() | Inspect():
                return self._about_stream(asked)
            case Backfills() | BackfillAsking() | Resume() | Cancel() | SwapAsking() | Undo() | Restore():
                return self._about_backfills(asked)
            case _:
                assert_never(asked)

    def _looking(self, asked: _Looking) -> list[str]:
        match asked:
            case Status(pipeline):
                return self._line("status", pipeline)
            case Report(pipeline, batch):
                return self._line("report", pipeline, f"--batch {batch}")
            case Records(pipeline, batch, set_aside):
                which = "--set-aside" if set_aside else "--offenders"
                return self._line("records", pipeline, f"--batch {batch}", which)
            case VerifyAsking(pipeline, table, as_of, sample):
                given = {"--table": table, "--as-of": "" if as_of is None else str(as_of), "--sample": sample}
                return self._line(
                    "verify", pipeline, *(f"{option} {value}" for option, value in given.items() if value)
                )
            case _:
                assert_never(asked)

    def _about_stream(self, asked: _OfStreams) -> list[str]:
        match asked:
            case Forget(pipeline, stream, partition, keep_offsets):
                which = "" if partition is None else f"--partition {partition}"
                return self._line("forget", pipeline, stream, which, "--keep-offsets" if keep_offsets else "", _WHY)
            case Land(stream):
                return ["land", "PIPELINE", stream, "FILE"]
            case Inspect(address):
                return ["inspect", shlex.quote(address)]
            case _:
                assert_never(asked)

    def _about_backfills(self, asked: _OfBackfills) -> list[str]:
        match asked:
            case Backfills(pipeline, number):
                return self._line("backfills", pipeline, "" if number is None else str(number))
            case BackfillAsking(pipeline, first, last, cascade, repaired, begin_anew, go_on):
                begin = "--from N" if first is None else f"--from {first}"
                to = "" if last in (None, first) else f"--to {last}"
                more = [
                    "--cascade" if cascade else "",
                    "--input repaired" if repaired else "",
                    f"--begin-anew {begin_anew}" if begin_anew else "",
                    f"--go-on {go_on}" if go_on else "",
                ]
                return self._line("backfill", pipeline, begin, to, *more)
            case Resume(pipeline, number) | Cancel(pipeline, number):
                word = "resume" if isinstance(asked, Resume) else "cancel"
                return self._line("backfill", pipeline, f"--{word} {number}")
            case SwapAsking(pipeline, number) | Undo(pipeline, number):
                word, approved = (
                    ("swap", f"--approve {asked.approved}") if isinstance(asked, SwapAsking) else ("undo", "")
                )
                return self._line(word, pipeline, str(number), approved)
            case Restore(pipeline):
                return self._line("restore", pipeline)
            case _:
                assert_never(asked)

    def _line(self, verb: str, pipeline: str, *words: str) -> list[str]:
        return [verb, self.named.get(pipeline, pipeline), *filter(None, words)]


def _taking(away: tuple[str, ...] | UnsetType) -> list[str]:
    return [f"--take-away {name}" for name in away] if isinstance(away, tuple) else []


def _about_table(asked: _OfTables) -> list[str]:
    match asked:
        case HandOver(table, before, to):
            return ["hand-over", table, *([f"--from {before}"] if before else []), f"--to {to}", _WHY]
        case AcceptChanges(table, version):
            return ["accept-changes", table, f"--up-to {version}", _WHY]
        case MoveTables(to):
            return ["move-tables", shlex.quote(to), _WHY]
        case _:
            assert_never(asked)


def _of_backfill(command: Command) -> Command:
    """The command that does the same for a backfill, if the name is one's."""
    match command:
        case Run(name) | Replan(name) | Status(name):
            of = backfill_of(name)
        case _:
            return command
    if of is None:
        return command
    match command:
        case Run():
            return Resume(*of)
        case Replan():
            return Cancel(*of)
        case Status():
            return Backfills(of[0])
        case _:
            assert_never(command)


def _beyond(command: Command) -> str:
    """What the user must do beside the command."""
    if not isinstance(command, Replan) or backfill_of(command.pipeline) is None:
        return ""
    return f" and ask for the backfill again{', with `--input repaired`' if command.repaired else ''}"


def _in_airflow(command: Command) -> str | None:
    """How to do the same in Airflow, if Airflow can."""
    match _of_backfill(command):
        case Repeat():
            return "clear the failed task"
        case Run(pipeline, again):
            return _started(pipeline, {}, ["Again"] if again else [])
        case PlanAsking(name, begin_anew, go_on, take_away):
            fields = {"Begin anew": begin_anew or None, "Go on": go_on or None, "Take away": take_away or None}
            return _started(name, fields)
        case BackfillAsking(pipeline, first, last, cascade, repaired, begin_anew, go_on):
            to = "the newest" if cascade else last if last is not None else first
            asked = {"From batch": first, "To batch": to if first is not None else None}
            asked |= {"Begin anew": begin_anew or None, "Go on": go_on or None}
            return _started(f"{pipeline}_backfill", asked, ["Repaired input"] if repaired else [])
        case Resume(pipeline, number):
            return _started(f"{pipeline}_backfill", {"Backfill": number})
        case SwapAsking():
            return "clear the task compare, which asks for approval"
        case Undo(pipeline, number):
            return _started(f"{pipeline}_undo", {"Backfill": number})
        case VerifyAsking(pipeline, _, as_of, sample):
            return _started(f"{pipeline}_verify", {"Sample": sample or None}) if as_of is None else None
        case (Replan() | Restore() | Forget() | Land() | Status() | Report() | Records() | Backfills() | Cancel()) | (
            HandOver() | AcceptChanges() | MoveTables() | Inspect() | Iceberg()
        ):
            return None
        case _ as never:
            assert_never(never)


def _started(dag: str, fields: Mapping[str, object], ticked: Sequence[str] = ()) -> str:
    """How a DAG is started by its form, with these fields that are not None."""
    filled = [f"{field} {value}" for field, value in fields.items() if value not in (None, UNSET)]
    words = " and ".join([*filled, *ticked])
    return f"start the DAG {dag}{f', with {words}' if words else ''}"
