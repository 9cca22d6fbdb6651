"""Backups of the embedded Postgres; tests/processes makes one and restores it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from memserver.cli.main import app
from memserver.errors import MemserverError, SetupError
from memserver.local.postgres.binaries import usable_binaries
from memserver.local.postgres.dump import revision_of


@pytest.mark.parametrize("content", [b"", b"PK", b"PGDMP", b"PGDMP\x01\x10\x00" + bytes(5000)])
def test_a_file_that_is_no_backup_is_named_before_anything_is_done(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "b.dump"
    file.write_bytes(content)
    with pytest.raises(SetupError, match="no backup of memserver's"):
        revision_of(usable_binaries(tmp_path, None), file)


@pytest.mark.parametrize(
    ("arguments", "url", "why"),
    [
        (["backup", "new.dump"], "postgresql://x@nowhere/x", "is not the embedded one"),
        (["restore", "old.dump"], "postgresql://x@nowhere/x", "is not the embedded one"),
        (["backup", "old.dump"], None, "old.dump is there already"),
    ],
)
def test_what_can_not_be_backed_up_or_restored_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    url: str | None,
    why: str,
) -> None:
    (tmp_path / "old.dump").touch()
    monkeypatch.chdir(tmp_path)
    if url:
        monkeypatch.setenv("MEMSERVER_DATABASE_URL", url)
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, MemserverError)
    assert why in str(done.exception)
