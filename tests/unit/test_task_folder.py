"""The folder of a task in the temporary folder: it ends with its task, even if that was killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_jobs.engine.task_folder import KeptFolder, task_folder

HOLDING = """
from spark_jobs.engine.task_folder import task_folder

with task_folder() as folder:
    (folder / "spilled").write_text("much")
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def holding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A process that has such a folder in a temporary folder of this test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    process = subprocess.Popen([sys.executable, "-c", HOLDING], **pipes)  # type: ignore[call-overload]
    yield process
    process.kill()
    process.communicate()


def test_the_folder_of_a_killed_task_goes_with_the_next(holding: subprocess.Popen[str]) -> None:
    assert holding.stdout is not None
    folder = Path(holding.stdout.readline().strip())
    with task_folder():
        assert (folder / "spilled").read_text() == "much"
    os.kill(holding.pid, signal.SIGKILL)
    holding.wait()
    assert folder.exists()
    with task_folder() as own:
        assert not folder.exists()
        assert own.exists()
    assert not own.exists()


def test_folders_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    elsewhere, file = tmp_path / "elsewhere", tmp_path / "coset-orders-file"
    elsewhere.mkdir()
    file.write_text("mine")
    (tmp_path / "coset-orders-link").symlink_to(elsewhere)
    with task_folder():
        pass
    assert elsewhere.exists()
    assert file.read_text() == "mine"


def test_many_at_once_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def use(number: int) -> str:
        with task_folder() as folder:
            (folder / "mine").write_text(str(number))
            return (folder / "mine").read_text()

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(use, range(400))) == [str(number) for number in range(400)]
    assert not list(tmp_path.iterdir())


def test_all_that_a_process_keeps_is_in_one_folder_that_others_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first, second = KeptFolder(), KeptFolder()
    (first.path / "kept").write_text("mine")
    with task_folder():
        assert (first.path / "kept").read_text() == "mine"
    (of_process,) = tmp_path.iterdir()
    assert {*of_process.iterdir()} == {first.path, second.path}
    path = first.path
    del first
    assert not path.exists()
    shutil.rmtree(of_process)
    assert KeptFolder().path.parent.parent == tmp_path
