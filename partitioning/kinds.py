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

    OLDER = "older", "A version of Coset that did not tell kinds found it.", "Do what the finding says."

    # The command line, and other input from outside.
    ARGUMENT = "argument", "An option or an argument of a command has no meaning.", "Write it as the finding says."
    LOCAL_FILE = "local-file", "A file of this machine cannot be read or written.", "Name another one."
    NUMBER = "number", "A number is out of its bounds.", "Use one within them."
    SETTING = "setting", "A setting has a value that it cannot have.", "Correct it in the file, form or option."
    SECRET = (
        "secret",
        "A secret stands in a file of the code.",
        "Take it out, have it changed, and let the environment give it.",
    )
    LOCATION = "location", "A location, its folder or its size is not what one can be.", "Correct the variable."

    # A pipeline, as it was written.
    PIPELINE_UNKNOWN = "pipeline.unknown", "No file defines a pipeline of that name.", "Name its file."
    PIPELINE_FAILS = "pipeline.fails", "The pipeline's file raises an error.", "Correct the line that it names."
    DECLARATION = "declaration", "A stream, step or table is declared in a way that has no meaning.", "Correct it."
    NAME = "name", "A name is taken, unknown, or cannot be one.", "Choose another one, or correct it."
    KEYS_DO_NOT_MEET = (
        "keys.do-not-meet",
        "Equal keys would not come to one task: their placement or type differs, or there is no key.",
        "Rekey or repartition the flow, or declare what its producers use.",
    )
    SQL = "sql", "DuckDB does not accept an expression, or it fails on the records.", "Correct it."
    SQL_COLUMN = "sql.column", "An expression names a column that there is not.", "Correct the name, or land it."
    SQL_TYPE = "sql.type", "A column has a type, or a name, that cannot be used there.", "Cast or rename it."
    COMBINE_ORDER = "combine.order", "A combine gives another result in another order.", "Use other aggregates."
    FUNCTION = "function", "A Python function raises, or gives what it must not give.", "Correct the line it names."
    IMPORT = "import", "What is to be called cannot be imported, or may not be.", "Correct the path, or allow it."
    EXPECTATION_UNKNOWN = "expectation.unknown", "Great Expectations has no such expectation.", "Correct it."

    # Planning.
    SCHEME = "scheme", "A scheme, partitioner or number of tasks does not fit the stage.", "Choose another one."
    PARTITIONER = "partitioner", "A partitioner's answer does not assign every key once.", "Correct the partitioner."
    GROUPER = "grouper", "A grouper's answer does not have every task once.", "Correct the grouper."
    PLAN_UNSOUND = "plan.unsound", "A plan contradicts itself; it is not run.", "Report it with the plan."
    PLAN_WAVES = "plan.waves", "A plan has more waves than the DAG.", "Give the DAG the settings of the plan."

    # Input that has arrived.
    FOLDERS = "stream.folders", "The folders or files of a stream are not laid out as declared.", "Land them so."
    PARTITIONS = "stream.partitions", "A stream has other partitions than declared, or than read.", "Declare them."
    STREAM_RESET = (
        "stream.reset",
        "A stream ends before the read offsets: the topic was re-created, or files were removed.",
        "Restore what was removed, or give the new topic another stream name.",
    )
    STREAM_REPLACED = (
        "stream.replaced",
        "Read offsets have other records now: the topic or its files were made anew.",
        "Put the files back, give the new topic another stream name, or `coset forget`.",
    )
    STREAM_LOST = (
        "stream.lost",
        "Offsets that were not read yet are gone.",
        "Land them again, or go on without them with `--accept-loss`.",
    )
    STREAM_DELETES = (
        "stream.deletes",
        "A snapshot of an Iceberg table takes rows away that a stream cannot give back, or in a way that is not read.",
        "Roll it back, or begin anew with it as a table.",
    )
    STREAM_GAP = "stream.gap", "Offsets are missing between records.", "Land them, or declare the stream sparse."
    STREAM_TWICE = "stream.twice", "Two files have other records at the same offsets.", "Remove the wrong one."
    STREAM_START = "stream.start", "A batch cannot begin at that offset.", "Begin at the one that is named."
    LOSS_UNFOUNDED = "stream.loss-unfounded", "A loss was accepted that is none.", "Leave it out."
    STREAM_COLUMNS = "stream.columns", "Files of a stream have columns that do not go together.", "Land them alike."
    FILE_GONE = "file.gone", "A file is gone since it was planned or written.", "Restore it, or plan anew."
    FILE_CHANGED = "file.changed", "A file was changed since it was planned or written.", "Restore it, or plan anew."
    FILE_UNREADABLE = "file.unreadable", "A file is damaged or has another format.", "Land it again."
    RECORD = "record", "A record, offset or key is not as it was declared.", "Correct the declaration, or the record."
    KEY = "key", "A value is no key of the declared format.", "Correct the key, or its format."

    # Brokers and registries.
    TOPIC_UNKNOWN = (
        "topic.unknown",
        "The broker has no such topic, or the catalogue no such table.",
        "Correct the name.",
    )
    BROKER_UNREACHABLE = "broker.unreachable", "A broker does not answer for now.", "Run the same command again."
    BROKER_DENIED = "broker.denied", "A broker denied access.", "Check the credentials."
    BROKER_SETTINGS = "broker.settings", "Kafka's client does not accept its properties.", "Correct the file."
    REGISTRY_UNREACHABLE = "registry.unreachable", "The schema registry does not answer for now.", "Run again."
    REGISTRY_DENIED = "registry.denied", "The schema registry denied access.", "Check the credentials."
    SCHEMA = "schema", "There is no schema, or one that cannot be read.", "Register it, or give `schema=`."

    # The store.
    STORE_UNNAMED = "store.unnamed", "No store is named.", "Give `--store`, or set COSET_STORE."
    STORE_ADDRESS = ("store.address", "An address names no bucket and no folder that can be used.", "Correct it.")
    STORE_ELSEWHERE = (
        "store.elsewhere",
        "A folder of one machine is named, and tasks run on others.",
        "Use an S3 address, or run on that machine.",
    )
    STORE_NEW = (
        "store.new",
        "This store has no batch of a pipeline, and another store has.",
        "Name the other store; or say `--new-store`.",
    )
    STORE_UNREACHABLE = "store.unreachable", "The store does not answer for now.", "Run the same command again."
    STORE_DENIED = "store.denied", "The store denied access.", "Check credentials, policy and clock."
    STORE_UNKNOWN = "store.unknown", "Nobody knows whether a write happened.", "Run again: that settles it."
    DOCUMENT_FORMAT = "document.format", "Another version of Coset wrote a document.", "Use that version."
    DOCUMENT_DAMAGED = "document.damaged", "A document of the store cannot be read.", "Restore it from a backup."
    DOCUMENT_MISSING = "document.missing", "A document is missing that must be there.", "Restore it from a backup."
    DOCUMENTS_DISAGREE = "document.disagrees", "Documents contradict each other.", "Restore them from a backup."

    # Batches.
    BATCH_UNKNOWN = "batch.unknown", "There is no such batch or plan.", "Name one that there is."
    BATCH_UNPUBLISHED = "batch.unpublished", "A batch was asked for that is not published.", "Name another one."
    BATCH_NONE_OPEN = "batch.none-open", "No batch is open, so none can be given up.", "Nothing: go on."
    BATCH_OPEN = (
        "batch.open",
        "A batch is open, and goes on from what was known when it was planned.",
        "Finish it first.",
    )
    BATCH_DECIDED = "batch.decided", "A batch is decided, so it cannot be decided otherwise.", "Finish it."
    BATCH_UNDECIDED = "batch.undecided", "A batch is not checked yet, so it cannot be published.", "Run it."
    BATCH_UNRUN = "batch.unrun", "Tasks of a batch have not run to their end.", "Run it."
    BATCH_WAITS = (
        "batch.waits",
        "A batch's last two attempts failed in the same way.",
        "Correct what they found, then plan anew, or ask for the same plan again.",
    )
    TASK_FILES = "task.files", "What tasks left is not what their receipts say.", "Restore the files, or plan anew."
    PROOF = "proof", "Records, keys or tables are not as the plan has them.", "See the report; find what changed."
    EXPECTATION = "expectation", "An expectation of the pipeline on its results is not met.", "Correct the records."
    EXPECTATION_FAILS = "expectation.fails", "An expectation cannot be evaluated.", "Correct its arguments."

    # Tables and state.
    TABLE_COLUMNS = "table.columns", "A table has other columns, or a column that it cannot hold.", "Keep them."
    TABLE_OWNER = "table.owner", "A table belongs to another pipeline, or to none.", "Name another table; hand it over."
    TABLE_AGAIN = (
        "table.again",
        "A pipeline would append rows of the same records as an earlier owner of the table.",
        "Give the table back, name another one, begin behind them, or `coset accept-changes`.",
    )
    TABLE_RULE = (
        "table.rule",
        "A table has a rule of its own, such as a constraint, that a batch could break.",
        "Drop the rule, and say it with `expect=`; or name another table.",
    )
    ROWS_TAKEN = (
        "rows.taken",
        "A batch would leave a table, or what a step kept, with far fewer rows.",
        "Keep the step as it was, or ask for it by name: `--take-away`.",
    )
    TABLE_CHANGED = (
        "table.changed",
        "Somebody else than its pipeline changed the rows of a table.",
        "Take it back, or accept it by name with `coset accept-changes`.",
    )
    TABLE_UNKNOWN = "table.unknown", "There is no such table.", "Correct its name, or the store."
    TABLE_MODE = "table.mode", "A table was written in another mode before.", "Keep it, or name another table."
    TABLE_PLACE = (
        "table.place",
        "A store's tables are to lie elsewhere than they do, or where they cannot.",
        "Name the address again, or copy the tables and `coset move-tables`.",
    )
    ICEBERG_TABLE = (
        "iceberg.table",
        "An Iceberg table cannot follow the table of its name, or others wrote to it.",
        "Undo what they did; or drop it in the catalogue, which leaves its files, and let it be made again.",
    )
    ICEBERG_DENIED = (
        "iceberg.denied",
        "The catalogue of Iceberg tables denies access, or does not do what it is asked.",
        "Have access granted, or its configuration put right.",
    )
    ICEBERG_UNREACHABLE = (
        "iceberg.unreachable",
        "The catalogue of Iceberg tables does not answer. What was published stays so.",
        "Run the command again once it does; or the next batch does it.",
    )
    TABLE_BEHIND = "table.behind", "A table lacks what was published to it.", "Restore both from one backup."
    TABLE_DIFFERS = (
        "table.differs",
        "Published rows are not those of the table's query.",
        "See the first keys that differ, and `coset explain`.",
    )
    TABLE_BEGINS = (
        "table.begins",
        "A table is new, or was left out, and would lack the records of published batches.",
        "Make it whole by `coset backfill --from 0 --cascade`, or take it so: `--begin-anew`, `--go-on`.",
    )
    TABLE_QUERY = (
        "table.query",
        "The query of an appended table has changed since the last published batch.",
        "Change it back, rebuild the table by `coset backfill --from 0 --cascade`, or keep its rows: `--go-on`.",
    )
    VERIFY_INPUT = "verify.input", "Records that published batches took are gone.", "Restore their files."
    VERIFY_VERSION = (
        "verify.version",
        "The version of a table that a batch made is gone.",
        "Verify it as a later batch published it, or as it is now.",
    )
    TABLE_AHEAD = "table.ahead", "A table holds what its pipeline has not published.", "Restore both from one backup."
    STATE_GONE = "state.gone", "State that a batch goes on from is gone.", "Make it anew: `coset restore`."
    STATE_CHANGED = (
        "state.changed",
        "A step that keeps state, or a step above it, has changed since the last published batch.",
        "Change it back, rebuild it by `coset backfill --from 0 --cascade`, or name it: `--go-on`, `--begin-anew`.",
    )
    STATE_BEGINS = (
        "state.begins",
        "A step of a table with rows would begin without state: it is new, renamed, or not kept.",
        "Name it as it was, name another table, `--begin-anew`, or rebuild it by `coset backfill --from 0 --cascade`; "
        "if its stream was left out, `coset forget`.",
    )
    STATE_EXCHANGED = "state.exchanged", "A backfill exchanged what a batch goes on from.", "Plan it anew."
    STATE_NONE = "state.none", "No step of the batch keeps that.", "Name one that does."

    # Backfills.
    BACKFILL_UNKNOWN = "backfill.unknown", "There is no such backfill.", "List them with `coset backfills`."
    BACKFILL_HELD = "backfill.held", "A backfill is paused, cancelled or ended.", "Let it go on, or begin another."
    BACKFILL_INPUT = "backfill.input", "A backfill does not read what the first run read.", "Give `--input repaired`."
    BACKFILL_UNEQUAL = "backfill.unequal", "Another scheme gave another result.", "Report it."
    BACKFILL_UNREADY = "backfill.unready", "A backfill is not compared, or not with what counts now.", "Run it again."
    BACKFILL_APPROVAL = "backfill.approval", "Another comparison was approved.", "Look at it again."
    BACKFILL_TURN = "backfill.turn", "A backfill's rows are in place already, or are not.", "See what counts."
    BACKFILL_LATER = "backfill.later", "Later batches went on from what it changes.", "Run them too: `--cascade`."
    BACKFILL_TABLE = "backfill.table", "A table does not have a batch's files any more.", "Restore them."

    # Runners.
    RUNNER = "runner", "The runner that was chosen cannot run these tasks.", "Choose another one."
    RUN_ENDED = "run.ended", "A process, job or group was ended from outside.", "Run again."
    SPARK = "spark", "Spark does not start, does not answer, or a job of it fails.", "Read its log, then run again."
    NO_WORKER = (
        "spark.no-worker",
        "No worker of Spark has accepted a job, or its master does not answer.",
        "Start workers with the cores and memory asked for, then run again.",
    )
    WORKER = (
        "spark.worker",
        "A worker has another Python, or other packages, than the job needs.",
        "Install them there, and name that Python by `spark.pyspark.python`; or send an environment of `coset pack`.",
    )
    ENGINE = (
        "engine",
        "A batch was planned for another version of DuckDB than is here.",
        "Plan it anew: `coset replan`; or install that version again.",
    )
    SPARK_ROWS = "spark.rows", "Spark gave other rows than it was given.", "Run again; then report it."
    MEMORY = "memory", "A task has no memory left.", "Give it more with `--memory`."
    OPEN_FILES = "open-files", "A process may open too few files at once.", "Raise the limit: `ulimit -n 4096`."
    EXTRA = "extra", "A package that only an extra of Coset brings is not installed.", "Install the extra."
    SHIPPING = "shipping", "Code that is to be shipped cannot be.", "Correct the name, or install it there."
    AIRFLOW_DATES = "airflow.dates", "Airflow's own backfill goes by dates.", "Start the DAG of backfills."

    # Taking over from Samza, and the demo.
    CHECKPOINTS = "samza.checkpoints", "Samza's checkpoints do not say where to start.", "Correct the file."
    SAMZA = "samza", "Samza has no such grouping.", "Ask for one that it has."
    DEMO = "demo", "A server or result of the demo is not as it should be.", "Read the log that is named."

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
