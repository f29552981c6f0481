"""Kinds: the causes of findings, and who has to act. docs/internals/findings.md lists them all."""

from __future__ import annotations

from enum import StrEnum


class Actor(StrEnum):
    """Who has to do something about a finding. docs/guide/operating.md says what, and whether at night."""

    NOBODY = "nobody"
    OPERATOR = "operator"
    PRODUCER = "producer"
    AUTHOR = "author"
    CALLER = "caller"
    COSET = "Coset"


class Kind(StrEnum):
    """The kind of an error: a code for programs, cause and cure for people.

    >>> Kind.STREAM_LOST.value, Kind("stream.lost") is Kind.STREAM_LOST
    ('stream.lost', True)
    """

    cause: str
    cure: str

    def __new__(cls, code: str, cause: str, cure: str) -> Kind:
        """A code with its cause and cure."""
        kind = str.__new__(cls, code)
        kind._value_ = code
        kind.cause, kind.cure = cause, cure
        return kind

    OLDER = "older", "An earlier version of Coset found it.", "Do what the finding says."

    # The command line, and other input from outside.
    ARGUMENT = "argument", "An option or argument has no meaning.", "Write it as the finding says."
    LOCAL_FILE = "local-file", "A local file cannot be read or written.", "Name another."
    NUMBER = "number", "A number is out of its bounds.", "Use one within them."
    SETTING = "setting", "A setting has an impossible value.", "Correct it."
    SECRET = "secret", "A secret stands in a file of the code.", "Change it, and give it by the environment."
    LOCATION = "location", "A location, its folder or its size is impossible.", "Correct the variable."

    # A pipeline, as it was written.
    PIPELINE_UNKNOWN = "pipeline.unknown", "No file defines that pipeline.", "Name its file."
    PIPELINE_FAILS = "pipeline.fails", "The pipeline's file raises an error.", "Correct the named line."
    DECLARATION = "declaration", "A declaration of a stream, step or table has no meaning.", "Correct it."
    NAME = "name", "A name is taken, unknown, or cannot be one.", "Choose another."
    KEYS_DO_NOT_MEET = (
        "keys.do-not-meet",
        "Equal keys would not meet: their placement or type differs, or there is no key.",
        "Rekey, repartition, or declare what producers use.",
    )
    SQL = "sql", "DuckDB refuses an expression, or it fails on records.", "Correct it."
    SQL_COLUMN = "sql.column", "An expression names an unknown column.", "Correct the name, or land it."
    SQL_TYPE = "sql.type", "A column's type or name cannot be used there.", "Cast or rename it."
    COMBINE_ORDER = "combine.order", "The result of a combine depends on order.", "Use other aggregates."
    FUNCTION = "function", "A Python function raises, or gives something else than declared.", "Correct the named line."
    IMPORT = "import", "A function cannot, or may not, be imported.", "Correct the path, or allow it."
    EXPECTATION_UNKNOWN = "expectation.unknown", "Great Expectations has no such expectation.", "Correct it."

    # Planning.
    SCHEME = "scheme", "A scheme, partitioner or number of tasks does not fit the stage.", "Choose another."
    PARTITIONER = "partitioner", "A partitioner's answer does not assign every key once.", "Correct the partitioner."
    GROUPER = "grouper", "A grouper's answer does not have every task once.", "Correct the grouper."
    PLAN_UNSOUND = "plan.unsound", "A plan contradicts itself.", "Report it with the plan."
    PLAN_WAVES = "plan.waves", "A plan has more waves than the DAG.", "Give the DAG the plan's settings."

    # Input that has arrived.
    FOLDERS = "stream.folders", "Folders or files are not laid out as declared.", "Land them so."
    PARTITIONS = "stream.partitions", "A stream has other partitions than declared or read.", "Declare them."
    STREAM_RESET = (
        "stream.reset",
        "A stream ends before read offsets: its topic was re-created, or files were removed.",
        "Restore the files, or give the topic another stream name.",
    )
    STREAM_REPLACED = (
        "stream.replaced",
        "Read offsets have other records: topic or files were made anew.",
        "Put the files back, give another stream name, or `coset forget`.",
    )
    STREAM_LOST = "stream.lost", "Unread offsets are gone.", "Land them again, or `--accept-loss`."
    STREAM_DELETES = (
        "stream.deletes",
        "A snapshot of an Iceberg table takes away rows of a stream, or in a way that is not read.",
        "Roll it back, or declare a table.",
    )
    STREAM_GAP = "stream.gap", "Offsets are missing between records.", "Land them, or declare the stream sparse."
    STREAM_TWICE = "stream.twice", "Two files have other records at the same offsets.", "Remove the wrong one."
    STREAM_START = "stream.start", "A batch cannot begin at that offset.", "Begin at the named one."
    LOSS_UNFOUNDED = "stream.loss-unfounded", "Nothing is lost of what was accepted.", "Leave it out."
    STREAM_COLUMNS = "stream.columns", "Columns of a stream's files do not go together.", "Land them alike."
    FILE_GONE = "file.gone", "A planned or written file is gone.", "Restore it, or plan anew."
    FILE_CHANGED = "file.changed", "A planned or written file has changed.", "Restore it, or plan anew."
    FILE_UNREADABLE = "file.unreadable", "A file is damaged or has another format.", "Land it again."
    RECORD = "record", "A record, offset or key is not as declared.", "Correct either."
    KEY = "key", "A value is no key of the declared format.", "Correct either."

    # Brokers and registries.
    TOPIC_UNKNOWN = (
        "topic.unknown",
        "The broker has no such topic, or the catalogue no such table.",
        "Correct the name.",
    )
    BROKER_UNREACHABLE = "broker.unreachable", "A broker does not answer.", "Run again."
    BROKER_DENIED = "broker.denied", "A broker denied access.", "Check the credentials."
    BROKER_SETTINGS = "broker.settings", "Kafka's client does not accept its properties.", "Correct the file."
    REGISTRY_UNREACHABLE = "registry.unreachable", "The schema registry does not answer.", "Run again."
    REGISTRY_DENIED = "registry.denied", "The schema registry denied access.", "Check the credentials."
    SCHEMA = "schema", "There is no readable schema.", "Register it, or give `schema=`."

    # The store.
    STORE_UNNAMED = "store.unnamed", "No store is named.", "Give `--store`, or set COSET_STORE."
    STORE_ADDRESS = ("store.address", "An address names no usable bucket or folder.", "Correct it.")
    STORE_ELSEWHERE = (
        "store.elsewhere",
        "The store is a folder, and tasks run on other machines.",
        "Use an S3 address, or run there.",
    )
    STORE_NEW = (
        "store.new",
        "Another store has a pipeline's batches, this one none.",
        "Name the other store, or `--new-store`.",
    )
    STORE_UNREACHABLE = "store.unreachable", "The store does not answer.", "Run again."
    STORE_DENIED = "store.denied", "The store denied access.", "Check credentials, policy and clock."
    STORE_UNKNOWN = "store.unknown", "Nobody knows whether a write happened.", "Run again: that settles it."
    DOCUMENT_FORMAT = "document.format", "Another version of Coset wrote a document.", "Use that version."
    DOCUMENT_DAMAGED = "document.damaged", "A document cannot be read.", "Restore it from a backup."
    DOCUMENT_MISSING = "document.missing", "A needed document is missing.", "Restore it from a backup."
    DOCUMENTS_DISAGREE = "document.disagrees", "Documents contradict each other.", "Restore them from a backup."

    # Batches.
    BATCH_UNKNOWN = "batch.unknown", "There is no such batch or plan.", "Name another."
    BATCH_UNPUBLISHED = "batch.unpublished", "That batch is not published.", "Name another."
    BATCH_NONE_OPEN = "batch.none-open", "No batch is open.", "Nothing: go on."
    BATCH_OPEN = "batch.open", "A batch is open, and goes on by its plan.", "Finish it first."
    BATCH_DECIDED = "batch.decided", "A batch is decided already.", "Finish it."
    BATCH_UNDECIDED = "batch.undecided", "A batch is not checked yet.", "Run it."
    BATCH_UNRUN = "batch.unrun", "Tasks of a batch have not run.", "Run it."
    BATCH_WAITS = (
        "batch.waits",
        "A batch's last two attempts failed in the same way.",
        "Correct it and plan anew, or ask for the same plan again.",
    )
    TASK_FILES = "task.files", "Files of tasks are not as in their receipts.", "Restore the files, or plan anew."
    PROOF = "proof", "Records, keys or tables are not as planned.", "See the report; find what changed."
    EXPECTATION = "expectation", "An expectation on results is not met.", "Correct the records."
    EXPECTATION_FAILS = "expectation.fails", "An expectation cannot be evaluated.", "Correct its arguments."

    # Tables and state.
    TABLE_COLUMNS = "table.columns", "A table has other columns, or cannot hold one.", "Keep them."
    TABLE_OWNER = "table.owner", "A table belongs to another pipeline, or to none.", "Name another table; hand it over."
    TABLE_AGAIN = (
        "table.again",
        "An earlier owner has appended rows of the same records.",
        "Name another table, begin behind them, or `coset accept-changes`.",
    )
    TABLE_RULE = (
        "table.rule",
        "A batch could break a table's own rule, such as a constraint.",
        "Say it with `expect=` instead, or name another table.",
    )
    ROWS_TAKEN = (
        "rows.taken",
        "A batch would take most rows of a table or state away.",
        "Keep the step, or `--take-away`.",
    )
    TABLE_CHANGED = "table.changed", "Others changed a table's rows.", "Take it back, or `coset accept-changes`."
    TABLE_UNKNOWN = "table.unknown", "There is no such table.", "Correct its name, or the store."
    TABLE_MODE = "table.mode", "A table was written in another mode.", "Keep it, or name another table."
    TABLE_PLACE = (
        "table.place",
        "A store's tables lie elsewhere, or cannot lie there.",
        "Name their address, or copy them and `coset move-tables`.",
    )
    ICEBERG_TABLE = (
        "iceberg.table",
        "An Iceberg table cannot follow its table, or others wrote to it.",
        "Undo that, or drop it without its files: it is made again.",
    )
    ICEBERG_DENIED = (
        "iceberg.denied",
        "The Iceberg catalogue denies access, or fails.",
        "Correct access or configuration.",
    )
    ICEBERG_UNREACHABLE = (
        "iceberg.unreachable",
        "The Iceberg catalogue does not answer. The batch is published.",
        "Run again; or the next batch does it.",
    )
    TABLE_BEHIND = "table.behind", "A table lacks what was published to it.", "Restore both from one backup."
    TABLE_DIFFERS = (
        "table.differs",
        "Published rows are not the query's.",
        "See the differing keys, and `coset explain`.",
    )
    TABLE_BEGINS = (
        "table.begins",
        "A new or left-out table would lack earlier records.",
        "`coset backfill --from 0 --cascade`; or `--begin-anew`, `--go-on`.",
    )
    TABLE_QUERY = (
        "table.query",
        "The query of an appended table has changed.",
        "Change it back; `coset backfill --from 0 --cascade`; or `--go-on`.",
    )
    VERIFY_INPUT = "verify.input", "Records of published batches are gone.", "Restore their files."
    VERIFY_VERSION = "verify.version", "A batch's version of a table is gone.", "Verify a later version."
    TABLE_AHEAD = "table.ahead", "A table holds more than was published.", "Restore both from one backup."
    STATE_GONE = "state.gone", "State that a batch needs is gone.", "Make it anew: `coset restore`."
    STATE_CHANGED = (
        "state.changed",
        "A step that keeps state, or one above it, has changed.",
        "Change it back; `coset backfill --from 0 --cascade`; or `--go-on`, `--begin-anew`.",
    )
    STATE_BEGINS = (
        "state.begins",
        "A step of a table with rows has no state: it is new, renamed, or not kept.",
        "Rename it back; `--begin-anew`; `coset backfill --from 0 --cascade`; or of a left stream `coset forget`.",
    )
    STATE_EXCHANGED = "state.exchanged", "A backfill exchanged a batch's state.", "Plan it anew."
    STATE_NONE = "state.none", "No step keeps that.", "Name another."

    # Backfills.
    BACKFILL_UNKNOWN = "backfill.unknown", "There is no such backfill.", "List them with `coset backfills`."
    BACKFILL_HELD = "backfill.held", "A backfill is paused, cancelled or ended.", "Let it go on, or begin another."
    BACKFILL_INPUT = "backfill.input", "A backfill's input has changed.", "Give `--input repaired`."
    BACKFILL_UNEQUAL = "backfill.unequal", "Another scheme gave another result.", "Report it."
    BACKFILL_UNREADY = "backfill.unready", "A backfill is not compared with what counts now.", "Run it again."
    BACKFILL_APPROVAL = "backfill.approval", "Another comparison was approved.", "Look at it again."
    BACKFILL_TURN = "backfill.turn", "A backfill's rows are, or are not, in place.", "See what counts."
    BACKFILL_LATER = "backfill.later", "Later batches went on from what it changes.", "Run them too: `--cascade`."
    BACKFILL_TABLE = "backfill.table", "A table lacks a batch's files.", "Restore them."

    # Runners.
    RUNNER = "runner", "The chosen runner cannot run these tasks.", "Choose another."
    RUN_ENDED = "run.ended", "A process, job or group was ended from outside.", "Run again."
    SPARK = "spark", "Spark does not start, does not answer, or a job of it fails.", "Read its log, then run again."
    NO_WORKER = (
        "spark.no-worker",
        "No Spark worker accepts a job, or the master does not answer.",
        "Start workers, then run again.",
    )
    WORKER = (
        "spark.worker",
        "A worker has another Python or other packages.",
        "Install them, and set `spark.pyspark.python`; or send `coset pack`'s.",
    )
    ENGINE = "engine", "A batch was planned for another DuckDB.", "`coset replan`, or install that version."
    SPARK_ROWS = "spark.rows", "Spark gave other rows than it was given.", "Run again; then report it."
    MEMORY = "memory", "A task has no memory left.", "Give it more with `--memory`."
    OPEN_FILES = "open-files", "A process may open too few files at once.", "Raise the limit: `ulimit -n 4096`."
    EXTRA = "extra", "An extra's package is not installed.", "Install the extra."
    SHIPPING = "shipping", "Code cannot be shipped.", "Correct the name, or install it there."
    AIRFLOW_DATES = "airflow.dates", "Airflow's own backfill goes by dates.", "Start the DAG of backfills."

    # Taking over from Samza, and the demo.
    CHECKPOINTS = "samza.checkpoints", "Samza's checkpoints do not say where to start.", "Correct the file."
    SAMZA = "samza", "Samza has no such grouping.", "Ask for another."
    DEMO = "demo", "A server or result of the demo is wrong.", "Read the named log."

    @property
    def each(self) -> str:
        """What the places are called in which one cause of this kind may be found by the hundred. Empty if each finding
        has a cause of its own."""
        return next((noun for noun, kinds in _MANY.items() if self in kinds), "")


_MANY = {
    "file": (
        *(Kind.FOLDERS, Kind.PARTITIONS, Kind.STREAM_COLUMNS, Kind.FILE_GONE, Kind.FILE_CHANGED, Kind.FILE_UNREADABLE),
        *(Kind.STATE_GONE, Kind.BACKFILL_TABLE),
    ),
    "partition": (
        *(Kind.STREAM_RESET, Kind.STREAM_REPLACED, Kind.STREAM_LOST, Kind.STREAM_START, Kind.STATE_BEGINS),
        Kind.VERIFY_INPUT,
    ),
    "task": (
        *(Kind.SQL, Kind.FUNCTION, Kind.IMPORT, Kind.MEMORY, Kind.ENGINE),
        *(Kind.RUNNER, Kind.SPARK, Kind.NO_WORKER, Kind.WORKER),
    ),
    "document": (Kind.DOCUMENT_FORMAT, Kind.DOCUMENT_DAMAGED, Kind.DOCUMENT_MISSING, Kind.DOCUMENTS_DISAGREE),
    "version": (Kind.TABLE_CHANGED,),
    "place": (
        *(Kind.PLAN_UNSOUND, Kind.STREAM_GAP, Kind.STREAM_TWICE, Kind.LOSS_UNFOUNDED, Kind.RECORD, Kind.KEY),
        *(Kind.BROKER_UNREACHABLE, Kind.BROKER_DENIED, Kind.TOPIC_UNKNOWN, Kind.SCHEMA),
        *(Kind.REGISTRY_UNREACHABLE, Kind.REGISTRY_DENIED),
        *(Kind.STORE_UNREACHABLE, Kind.STORE_DENIED, Kind.STORE_UNKNOWN, Kind.BATCH_UNRUN, Kind.TASK_FILES),
        *(Kind.BACKFILL_INPUT, Kind.RUN_ENDED, Kind.SPARK_ROWS, Kind.CHECKPOINTS, Kind.PARTITIONER),
    ),
}


_BY_ACTOR = {
    Actor.NOBODY: (
        Kind.BROKER_UNREACHABLE, Kind.REGISTRY_UNREACHABLE, Kind.STORE_UNREACHABLE, Kind.STORE_UNKNOWN,
        Kind.ICEBERG_UNREACHABLE, Kind.RUN_ENDED,
    ),
    Actor.OPERATOR: (
        Kind.OLDER, Kind.LOCATION, Kind.BROKER_DENIED, Kind.BROKER_SETTINGS, Kind.REGISTRY_DENIED,
        Kind.STORE_UNNAMED, Kind.STORE_ADDRESS, Kind.STORE_ELSEWHERE, Kind.STORE_DENIED, Kind.DOCUMENT_FORMAT,
        Kind.DOCUMENT_DAMAGED, Kind.DOCUMENT_MISSING, Kind.DOCUMENTS_DISAGREE, Kind.TASK_FILES,
        Kind.TABLE_CHANGED, Kind.TABLE_PLACE, Kind.ICEBERG_TABLE, Kind.ICEBERG_DENIED, Kind.TABLE_BEHIND,
        Kind.TABLE_AHEAD, Kind.STATE_GONE, Kind.BACKFILL_TABLE, Kind.VERIFY_INPUT, Kind.SPARK, Kind.NO_WORKER,
        Kind.WORKER, Kind.ENGINE, Kind.MEMORY, Kind.OPEN_FILES,
    ),
    Actor.PRODUCER: (
        Kind.FOLDERS, Kind.PARTITIONS, Kind.STREAM_RESET, Kind.STREAM_REPLACED, Kind.STREAM_LOST,
        Kind.STREAM_DELETES, Kind.STREAM_GAP, Kind.STREAM_TWICE, Kind.STREAM_COLUMNS, Kind.FILE_GONE,
        Kind.FILE_CHANGED, Kind.FILE_UNREADABLE, Kind.RECORD, Kind.KEY, Kind.TOPIC_UNKNOWN, Kind.SCHEMA,
        Kind.PROOF, Kind.EXPECTATION,
    ),
    Actor.AUTHOR: (
        Kind.SETTING, Kind.SECRET, Kind.PIPELINE_FAILS, Kind.DECLARATION, Kind.NAME, Kind.KEYS_DO_NOT_MEET,
        Kind.SQL, Kind.SQL_COLUMN, Kind.SQL_TYPE, Kind.COMBINE_ORDER, Kind.FUNCTION, Kind.IMPORT,
        Kind.EXPECTATION_UNKNOWN, Kind.SCHEME, Kind.PARTITIONER, Kind.GROUPER, Kind.PLAN_WAVES,
        Kind.BATCH_WAITS, Kind.EXPECTATION_FAILS, Kind.TABLE_COLUMNS, Kind.TABLE_OWNER, Kind.TABLE_AGAIN,
        Kind.TABLE_RULE, Kind.ROWS_TAKEN, Kind.TABLE_MODE, Kind.TABLE_DIFFERS, Kind.TABLE_BEGINS,
        Kind.TABLE_QUERY, Kind.STATE_CHANGED, Kind.STATE_BEGINS, Kind.SHIPPING,
    ),
    Actor.CALLER: (
        Kind.ARGUMENT, Kind.LOCAL_FILE, Kind.NUMBER, Kind.PIPELINE_UNKNOWN, Kind.STORE_NEW, Kind.STREAM_START,
        Kind.LOSS_UNFOUNDED, Kind.BATCH_UNKNOWN, Kind.BATCH_UNPUBLISHED, Kind.VERIFY_VERSION,
        Kind.BATCH_NONE_OPEN, Kind.BATCH_OPEN, Kind.BATCH_DECIDED, Kind.BATCH_UNDECIDED, Kind.BATCH_UNRUN,
        Kind.TABLE_UNKNOWN, Kind.STATE_EXCHANGED, Kind.STATE_NONE, Kind.BACKFILL_UNKNOWN, Kind.BACKFILL_HELD,
        Kind.BACKFILL_INPUT, Kind.BACKFILL_UNREADY, Kind.BACKFILL_APPROVAL, Kind.BACKFILL_TURN,
        Kind.BACKFILL_LATER, Kind.RUNNER, Kind.EXTRA, Kind.AIRFLOW_DATES, Kind.CHECKPOINTS, Kind.SAMZA,
        Kind.DEMO,
    ),
    Actor.COSET: (
        Kind.PLAN_UNSOUND, Kind.BACKFILL_UNEQUAL, Kind.SPARK_ROWS,
    ),
}  # fmt: skip
_ACTORS = {kind: acts for acts, kinds in _BY_ACTOR.items() for kind in kinds}


def actor(kind: Kind) -> Actor:
    """Who has to do something about findings of a kind.

    >>> actor(Kind.STORE_UNREACHABLE).value, actor(Kind.SQL).value
    ('nobody', 'author')
    >>> [kind for kind in Kind if kind not in _ACTORS], sum(map(len, _BY_ACTOR.values())) == len(Kind)
    ([], True)
    """
    return _ACTORS[kind]
