"""Commands that a clone of Coset has and a wheel has not: what they start is in the clone's folder `demo`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from coset.cli.command import Panel, command

_Home = Annotated[Path, typer.Option("--home", envvar="COSET_HOME", help="The folder that holds everything.")]


@command(Panel.PROJECT)
def demo(
    home: _Home = Path(".coset"),
) -> None:
    """Run the main job on real flights: an S3 server, three arrivals, three batches through Airflow and Spark."""
    from demo.home import Home

    its_home = Home(home.resolve())
    # The server takes two seconds to start, and so do the imports.
    with its_home.served(lambda: import_module("demo.demo")):
        from demo import demo

        demo.run(its_home)


@command(Panel.PROJECT)
def serve(
    home: _Home = Path(".coset"),
    airflow: Annotated[bool, typer.Option("--airflow", help="Airflow's scheduler and web page too.")] = False,
) -> None:
    """Keep the demo's S3 server and a Spark server running until Ctrl-C."""
    from demo import demo

    demo.serve(home, airflow=airflow)
