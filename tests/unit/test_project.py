"""A project, what coset.toml says and which environment is meant; and settings, refused with all that is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from coset import Pipeline
from coset.cli.main import app
from coset.project.coset_toml import project_of
from coset.project.here import Here, entered
from coset.project.pipeline_files import find, load, names
from coset.project.project import Environment, Project, is_schedule, scheduled_run
from partitioning.authoring.settings import DEFAULTS, PartitionerRef, Settings
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.schemes import COGROUP, MAX, elastic
from partitioning.model.schemes import tasks as tasks_scheme

TWO = """
pipelines = ["shop"]

[environments.dev]
store = ".coset/store"
tables = ".coset/tables"
imports = ["shop", "lab"]
runner = "local"
settings = "settings.toml"

[environments.prod]
production = true
store = "s3://lake/coset"
master = "sc://spark:15002"
notify = "SHOP_NOTIFY"
"""
PIPELINE = 'from coset import Pipeline\npipeline = Pipeline("{name}", source="s3://landing/topics")\n'


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("COSET_") or name == "SPARK_MASTER":
            monkeypatch.delenv(name)


def written(folder: Path, text: str) -> Path:
    (folder / "coset.toml").write_text(text)
    return folder


def refused(folder: Path) -> dict[str, tuple[Kind, str, str]]:
    """What is found in the folder's coset.toml: by its sentence the kind, the line and what to do."""
    with pytest.raises(Refused) as caught:
        project_of(folder)
    return {each.what: (each.kind, each.where.rpartition(":")[2], each.then) for each in caught.value.findings}


def test_it_is_found_from_a_folder_upwards(tmp_path: Path) -> None:
    inner = written(tmp_path, TWO) / "dags" / "pipelines"
    inner.mkdir(parents=True)
    project = project_of(inner)
    assert (project.folder, project.pipelines, list(project.environments)) == (tmp_path, ("shop",), ["dev", "prod"])
    assert project.environments["prod"].production


def test_without_a_file_there_is_the_usual_folder_and_no_environment(tmp_path: Path) -> None:
    assert project_of(tmp_path) == Project(folder=tmp_path)
    with entered(tmp_path) as here:
        assert (here.name, os.environ.get("COSET_STORE")) == ("", None)


def test_the_environment_gives_what_no_variable_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, TWO)
    monkeypatch.setenv("COSET_IMPORTS", "mine")
    with entered(tmp_path, "dev"):
        assert os.environ["COSET_STORE"] == str(tmp_path / ".coset" / "store")
        assert os.environ["COSET_TABLES"] == str(tmp_path / ".coset" / "tables")
        assert os.environ["COSET_SETTINGS"] == str(tmp_path / "settings.toml")
        assert (os.environ["COSET_IMPORTS"], os.environ["COSET_RUNNER"]) == ("mine", "local")
        assert os.environ["COSET_ENV"] == "dev"
    assert "COSET_STORE" not in os.environ


def test_settings_of_spark_are_given_by_their_names_however_the_table_is_written(tmp_path: Path) -> None:
    table = 'spark.executor.memory = "4g"\nspark.cores.max = 8\n"spark.speculation" = true\n"spark.jars" = "a b"\n'
    written(tmp_path, f"[environments.prod.spark]\n{table}")
    with entered(tmp_path):
        assert os.environ["COSET_SPARK"] == (
            "spark.executor.memory=4g spark.cores.max=8 spark.speculation=true 'spark.jars=a b'"
        )


def test_settings_of_spark_that_are_none_or_secret_are_refused(tmp_path: Path) -> None:
    table = '"spark.hadoop.fs.s3a.secret.key" = "hunter2"\nexecutor.memory = "4g"\n'
    found = refused(written(tmp_path, f"[environments.prod.spark]\n{table}"))
    assert {(kind, line) for kind, line, _ in found.values()} == {(Kind.SECRET, "2"), (Kind.SETTING, "3")}
    assert "hunter2" not in str(found)


def test_people_are_told_at_addresses_that_a_variable_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, TWO)
    monkeypatch.setenv("SHOP_NOTIFY", "json://localhost/orders")
    with entered(tmp_path, "prod"):
        assert os.environ["COSET_NOTIFY"] == "json://localhost/orders"


def test_which_environment_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, TWO)
    with pytest.raises(Refused, match="it is not said which environment is meant") as caught, entered(tmp_path):
        pass
    assert caught.value.findings[0].then == "name one of dev, prod, by `--env` or COSET_ENV"
    monkeypatch.setenv("COSET_ENV", "prod")
    with entered(tmp_path) as here:
        assert here.name == "prod"
    with entered(tmp_path, "dev") as here:
        assert here.name == "dev"
    with pytest.raises(Refused, match="there is no environment 'test'"), entered(tmp_path, "test"):
        pass
    monkeypatch.delenv("COSET_ENV")
    written(tmp_path, f'default = "dev"\n{TWO}')
    with entered(tmp_path) as here:
        assert here.name == "dev"
    written(tmp_path, "[environments.only]\n")
    with entered(tmp_path) as here:
        assert here.name == "only"


def test_an_environment_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="there is no environment 'prod'") as caught, entered(tmp_path, "prod"):
        pass
    assert caught.value.findings[0].then == "write it into coset.toml"


def test_all_that_is_wrong_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    text = 'piplines = []\ndefault = "live"\n[environments.dev]\nstroe = "a"\nproduction = "yes"\nrunner = "yarn"\n'
    found = refused(written(tmp_path, text))
    assert found["unknown key piplines"] == (Kind.SETTING, "1", "write 'pipelines'")
    assert found["there is no environment 'live'"] == (Kind.SETTING, "2", "name one of dev")
    assert found["unknown key environments.dev.stroe"] == (Kind.SETTING, "4", "write 'store'")
    wrong = sorted(what for what in found if "cannot be" in what)
    assert [each.partition(":")[0] for each in wrong] == [
        "environments.dev.production cannot be 'yes'",
        "environments.dev.runner cannot be 'yarn'",
    ]
    assert len(found) == 5


def test_a_schedule_is_an_expression_of_cron(tmp_path: Path) -> None:
    text = '[environments.prod]\nschedule = "@hourly"\nschedules = {spent = "30 6 * * 1-5", scores = ""}\n'
    prod = project_of(written(tmp_path, text)).environments["prod"]
    assert [prod.schedule_of(name) for name in ("visits", "spent", "scores")] == ["@hourly", "30 6 * * 1-5", ""]
    wrong = {"@continuous", "61 * * * *", "0 0 30 2 *", "* * * * * *", "every hour"}
    for schedule in wrong:
        ((what, (kind, line, then)),) = refused(
            written(tmp_path, f'[environments.dev]\nschedule = "{schedule}"\n')
        ).items()
        assert (kind, line) == (Kind.SETTING, "2")
        assert what.startswith(f"environments.dev.schedule cannot be {schedule!r}: ")
        # What is said to be right, is.
        assert [is_schedule(each) for each in re.findall(r'(?<=")[^"]+(?=")|@[a-z]+', then)] == [True] * 6
    ((what, _),) = refused(written(tmp_path, '[environments.dev]\nschedules = {spent = "never"}\n')).items()
    assert what.startswith("environments.dev.schedules.spent cannot be 'never': ")


@given(st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC)), st.integers(0, 59))  # noqa: DTZ001
def test_a_run_is_that_of_the_last_time_at_which_one_was_to_begin(now: datetime, minute: int) -> None:
    run = scheduled_run(f"{minute} * * * *", now)
    began = now.replace(minute=minute, second=0, microsecond=0)
    began -= timedelta(hours=began > now)
    assert run.ran == began.timestamp() * 1000
    assert run.next == (began + timedelta(hours=1)).timestamp() * 1000


@pytest.mark.parametrize(
    "line",
    [
        'password = "hunter2"',
        'notify = "mailto://me:hunter2@example.org"',
        'source = "kafka://me:hunter2@broker:9092"',
        'master = "sc://spark:15002/;token=hunter2"',
        'imports = ["AKIAHUNTER2HUNTER2XX"]',
        'sources = {orders = "s3://key:hunter2@lake/orders"}',
    ],
)
def test_a_secret_is_refused_and_not_repeated(line: str, tmp_path: Path) -> None:
    ((what, (kind, where, then)),) = refused(written(tmp_path, f"[environments.dev]\n{line}\n")).items()
    assert (kind, where) == (Kind.SECRET, "2") if "sources" not in line else kind is Kind.SECRET
    assert "holds a secret" in what
    assert "hunter2" not in f"{what}{then}".lower()


def test_what_is_no_toml_is_refused(tmp_path: Path) -> None:
    ((what, (kind, *_)),) = refused(written(tmp_path, "[environments\n")).items()
    assert (kind, what.startswith("coset.toml cannot be read: ")) == (Kind.SETTING, True)


def test_sources_and_owners_are_those_of_the_environment(tmp_path: Path) -> None:
    pipeline = Pipeline("spent", source="s3://landing/topics")
    pipeline.stream("orders", key="customer", partitions=4)
    pipeline.stream("returns", key="customer", partitions=4, source="s3://elsewhere/topics")
    pipeline.stream("visits", key="customer", partitions=4)
    environment = Environment(source="landing", sources={"spent.visits": "/data/visits"}, owner="shop")
    here = environment.applied(pipeline, tmp_path)
    assert {stream.name: stream.source for stream in here.streams} == {
        "orders": f"file://{tmp_path}/landing",
        "returns": "s3://elsewhere/topics",
        "visits": "file:///data/visits",
    }
    assert (here.owner, pipeline.owner, pipeline.streams[0].source) == ("shop", "", "s3://landing/topics")


def test_a_file_that_was_just_changed_is_read_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "just changed.py"
    here = Here(Project(folder=tmp_path))
    for named in ("a", "b"):
        file.write_text(f'from coset import Pipeline\npipeline = Pipeline("{named}", source="s3://landing/topics")\n')
        # Within a second, and of the same size.
        os.utime(file, (1_000_000_000, 1_000_000_000))
        assert load(here, str(file)).name == named


@pytest.mark.parametrize("named", ["../p.py", "./p/../../p.py", "{}/work/p/../../p.py"])
def test_a_file_is_loaded_by_a_path_that_its_source_can_be_named_by(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work" / "p").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    code = f"from pathlib import Path\n{PIPELINE.format(name='p')}".replace(
        '"s3://landing/topics"', 'Path(__file__).parent / "in"'
    )
    (tmp_path / "p.py").write_text(f'{code}pipeline.stream("s", key="k", partitions=1).write("t")\n')
    loaded = load(Here(Project(folder=tmp_path)), named.format(tmp_path))
    assert [stream.source for stream in loaded.streams] == [f"file://{tmp_path}/in"]


def test_a_pipeline_is_found_by_its_file_and_by_its_own_name(tmp_path: Path) -> None:
    written(tmp_path, TWO)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "money.py").write_text(PIPELINE.format(name="spent"))
    (tmp_path / "shop" / "_helpers.py").write_text("1 / 0\n")
    project = project_of(tmp_path)
    place = str(tmp_path / "shop" / "money.py")
    assert (find(project, "money"), find(project, "spent"), names(project)) == (place, place, ["money"])
    (tmp_path / "shop" / "broken.py").write_text("1 / 0\n")
    with pytest.raises(Refused, match="there is no pipeline 'nothing'") as caught:
        find(project, "nothing")
    assert caught.value.findings[1].where == f"{tmp_path}/shop/broken.py:1"
    with pytest.raises(Refused) as caught:
        find(project, "late.py")
    assert caught.value.findings[0].where == "late.py, shop/late.py"


def test_a_shell_completes_no_file_that_has_no_pipeline(tmp_path: Path) -> None:
    project = project_of(written(tmp_path, 'pipelines = ["shop"]'))
    (tmp_path / "shop").mkdir()
    texts = {
        "spent": PIPELINE,
        "given": "from shop.made import pipeline\n",
        "broken": "pipeline =\n",
        "inputs": "KEY = 1\n",
    }
    for name, text in texts.items():
        (tmp_path / "shop" / f"{name}.py").write_text(f'"""The pipeline {name}."""\n{text}')
    assert names(project) == ["broken", "given", "spent"]


def test_modules_can_be_named_in_place_of_folders(tmp_path: Path) -> None:
    named = written(tmp_path, 'pipelines = ["tests.pipelines.views", "dags.pipelines"]')
    assert "tests.pipelines.views" in find(project_of(named), "views")
    assert {"views", "tail_activity"} <= set(names(project_of(named)))
    with pytest.raises(Refused, match="there is no folder and no module 'shop"):
        names(project_of(written(tmp_path, 'pipelines = ["shop.pipelines"]')))


@pytest.mark.parametrize("known", [False, True], ids=["unknown", "known to this process"])
def test_processes_that_are_started_find_the_projects_own_folders_first(
    known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 'python_path = ["dags"]\n')
    for folder in ("dags", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "found_twice.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    if known:
        monkeypatch.syspath_prepend(tmp_path / "dags")
    started = [sys.executable, "-c", "import found_twice; print(found_twice.__file__)"]
    with entered(tmp_path):
        found = find_spec("found_twice")
        done = subprocess.run(started, capture_output=True, text=True, check=True)
    assert found is not None
    assert done.stdout.strip() == found.origin == str(tmp_path / "dags" / "found_twice.py")


def test_a_package_elsewhere_that_hides_the_projects_own_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, f'pipelines = ["dags/hidden_{tmp_path.name}"]\npython_path = ["dags"]\n')
    own, other = (tmp_path / folder / f"hidden_{tmp_path.name}" for folder in ("dags", "elsewhere"))
    for package in (own, other):
        package.mkdir(parents=True)
    (own / "spent.py").write_text(PIPELINE.format(name="spent"))
    (other / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(other.parent)
    with entered(tmp_path) as here:
        with pytest.raises(Refused, match="hides the project's own") as caught:
            load(here, "spent")
        (finding,) = caught.value.findings
        assert (finding.where, str(other.parent) in finding.what) == (str(own), True)
        assert finding.then == f"write an empty {own}/__init__.py, or rename the folder"
        (own / "__init__.py").write_text("")
        invalidate_caches()
        assert load(here, "spent").name == "spent"
    # Where the project's folder is not found first.
    monkeypatch.delitem(sys.modules, own.name)
    with pytest.raises(Refused, match="hides the project's own") as caught:
        load(here, str(own / "spent.py"))
    assert caught.value.findings[0].then == "rename it, or take the other folder off the Python path"


FILE = """
scheme = "cogroup"
groups = 4
grouper = "shop.groups:own"
limit = 1000

[stages."flights+planes"]
scheme = "elastic(2)"
partitioner = "shop.parts:ByCountry"

[steps.totals]
fan_in = 8
partitioner = {use = "shop.parts:ByLoad", maximum = 30000, minimum = 10000, cool_down = 2}
"""


def refused_values(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(Refused) as refusal:
        Settings.read(text, "settings.toml")
    return [(each.what, each.where, each.then) for each in refusal.value.findings]


def test_a_file_sets_what_may_be_set() -> None:
    assert Settings.read(FILE, "settings.toml") == Settings(
        scheme=COGROUP,
        schemes={"flights+planes": elastic(2)},
        partitioners={
            "flights+planes": PartitionerRef("shop.parts:ByCountry"),
            "totals": PartitionerRef("shop.parts:ByLoad", {"maximum": 30000, "minimum": 10000, "cool_down": 2}),
        },
        fan_in={"totals": 8},
        groups=4,
        grouper="shop.groups:own",
        limit=1000,
    )


def test_all_that_is_wrong_with_a_file_is_said_at_once() -> None:
    text = """
    schema = "cogroup"
    scheme = "sideways"
    groups = 0
    limit = "many"
    grouper = 3
    [stages]
    planes = 1
    [stages.flights]
    scheme = 2
    fan_in = 4
    [steps.totals]
    fan_in = 1
    partitioner = {maximum = 3}
    [steps.counted]
    partitioner = "ByLoad"
    """
    found = refused_values(text)
    assert [(what, where) for what, where, _ in found] == [
        ("unknown key 'schema'", "schema in settings.toml"),
        ("unknown scheme 'sideways'", "scheme in settings.toml"),
        ("0 is too small", "groups in settings.toml"),
        ("'many' is no whole number", "limit in settings.toml"),
        ("3 is no text", "grouper in settings.toml"),
        ("1 is no table", "stages.planes in settings.toml"),
        ("2 is no text", "stages.flights.scheme in settings.toml"),
        ("unknown key 'fan_in'", "stages.flights.fan_in in settings.toml"),
        ("1 is too small", "steps.totals.fan_in in settings.toml"),
        ("it does not say which partitioner to use", "steps.totals.partitioner in settings.toml"),
        ("'ByLoad' is no import path", "steps.counted.partitioner in settings.toml"),
    ]
    assert found[0][2] == (
        "use scheme, groups, grouper, limit, starts, begin_anew, go_on, take_away, offenders, hot_keys, far_fewer, "
        "stages, steps, tables"
    )
    assert found[7][2] == "use scheme, partitioner"


@pytest.mark.parametrize("text", ["stages = 3", "groups = true", "scheme = ", "steps.totals.fan_in = 2.5"])
def test_what_is_no_settings_file_is_refused(text: str) -> None:
    assert len(refused_values(text)) == 1


def test_the_command_line_goes_over_the_file() -> None:
    base = Settings.read(FILE, "settings.toml")
    assert Settings.parse(base=base) == base
    settings = Settings.parse(scheme=["tasks(6)", "flights+planes=max", "totals=tasks(2)"], groups=1, base=base)
    assert settings.scheme == tasks_scheme(6)
    assert settings.schemes == {"flights+planes": MAX, "totals": tasks_scheme(2)}
    assert (settings.groups, settings.limit, settings.grouper) == (1, 1000, "shop.groups:own")
    assert settings.partitioners == base.partitioners


def test_one_scheme_holds_for_all_stages_and_an_empty_file_sets_nothing() -> None:
    assert Settings.parse(scheme="elastic(2)", groups=3, limit=5) == Settings(elastic(2), groups=3, limit=5)
    assert Settings.parse() == DEFAULTS
    assert Settings.read("", "settings.toml") == DEFAULTS


def test_all_that_is_wrong_on_the_command_line_is_said_at_once() -> None:
    with pytest.raises(Refused) as refusal:
        Settings.parse(scheme=["sideways", "totals=tasks(0)"], groups=0, limit=0)
    assert [(each.what, each.where) for each in refusal.value.findings] == [
        ("unknown scheme 'sideways'", "scheme"),
        ("tasks(0) asks for 0 tasks", "scheme"),
        ("0 is too small", "groups"),
        ("0 is too small", "limit"),
    ]


@pytest.mark.parametrize("command", ["plan", "explain", "run"])
def test_the_command_line_reads_the_file_that_the_environment_names(command: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    words = [command, "tail_activity", "--store", "s3://nowhere/here"]
    for text, found in ((None, "the settings cannot be read"), ("groups = 0", f"groups in {file}")):
        if text is not None:
            file.write_text(text)
        result = CliRunner().invoke(app, words, env={"COSET_SETTINGS": str(file)})
        assert result.exit_code == 3
        assert found in result.stderr


def test_the_command_line_takes_a_scheme_for_each_stage() -> None:
    words = ["plan", "tail_activity", "--store", "s3://nowhere/here"]
    result = CliRunner().invoke(app, [*words, "--scheme", "cogroup", "--scheme", "flights+planes=tasks(0)"])
    assert result.exit_code == 3
    assert "tasks(0) asks for 0 tasks" in result.stderr
