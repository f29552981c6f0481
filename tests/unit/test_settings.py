"""Settings: read from a file, changed on the command line, refused with all that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from coset.cli.main import app
from partitioning.authoring.settings import DEFAULTS, PartitionerRef, Settings
from partitioning.errors import Refused
from partitioning.model.schemes import COGROUP, MAX, elastic
from partitioning.model.schemes import tasks as tasks_scheme

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


def refused(text: str) -> list[tuple[str, str, str]]:
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


def test_an_empty_file_sets_nothing() -> None:
    assert Settings.read("", "settings.toml") == DEFAULTS


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
    found = refused(text)
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
    assert len(refused(text)) == 1


def test_the_command_line_goes_over_the_file() -> None:
    base = Settings.read(FILE, "settings.toml")
    assert Settings.parse(base=base) == base
    settings = Settings.parse(scheme=["tasks(6)", "flights+planes=max", "totals=tasks(2)"], groups=1, base=base)
    assert settings.scheme == tasks_scheme(6)
    assert settings.schemes == {"flights+planes": MAX, "totals": tasks_scheme(2)}
    assert (settings.groups, settings.limit, settings.grouper) == (1, 1000, "shop.groups:own")
    assert settings.partitioners == base.partitioners


def test_one_scheme_alone_holds_for_all_stages() -> None:
    assert Settings.parse(scheme="elastic(2)", groups=3, limit=5) == Settings(elastic(2), groups=3, limit=5)
    assert Settings.parse() == DEFAULTS


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
