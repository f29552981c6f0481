"""The project: the file coset.toml, found from a folder upwards, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import field

from coset.project.environment import Environment
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.values import Value

FILE = "coset.toml"
# Where pipelines are in a folder without a coset.toml, and in one that does not say it.
USUAL = "dags/pipelines"


class Project(Value, frozen=True, kw_only=True):
    """What coset.toml says: where `pipelines` are (folders, or import paths of modules and packages), in which folders
    modules are found (`python_path`), its `environments`, and which of them is the `default`.
    """

    folder: Path
    pipelines: tuple[str, ...] = (USUAL,)
    python_path: tuple[str, ...] = ()
    default: str = ""
    environments: Mapping[str, Environment] = field(default_factory=dict)

    @property
    def python_folders(self) -> tuple[Path, ...]:
        """The folders in which its modules are found."""
        return tuple((self.folder / each).resolve() for each in self.python_path)

    def chosen(self, named: str | None) -> str:
        """The name of the environment that is meant: the one `named`, else the default, else the only one; empty if the
        project has none. Raises Refused if it is none of the project's, or if it is not said which."""
        name = named or self.default or (next(iter(self.environments)) if len(self.environments) == 1 else "")
        if name in self.environments or not (name or self.environments):
            return name
        what = f"there is no environment {name!r}" if name else "it is not said which environment is meant"
        known = ", ".join(self.environments)
        then = f"name one of {known}, by `--env` or COSET_ENV" if known else f"write it into {FILE}"
        raise Refused.of(Kind.ARGUMENT, what, str(self.folder / FILE), then, environment=name)
