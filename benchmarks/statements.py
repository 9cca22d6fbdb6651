"""Counts SQL statements as Postgres itself sees them: in its log, by `log_statement`.

Every statement that a client executes is one entry there, prepared or not, whoever sent it. Entries
carry the role; only the application role's count, and not BEGIN and COMMIT.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from memserver.storage.checks import APP_ROLE

LOG_SETTINGS = {"log_line_prefix": "@%u@", "log_parameter_max_length": "0"}
"""Settings that the server has to be started with."""

_ENTRY = re.compile(r"^@(?P<role>[^@]*)@LOG:  (?:statement|execute [^:]+): ", re.MULTILINE)
_NOT_COUNTED = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})
_SHOWN = 96


@dataclass
class StatementLog:
    """The server's log from one position to the next."""

    path: Path
    position: int = 0

    def skip(self) -> None:
        """Forget what was logged so far."""
        self.position = self.path.stat().st_size

    def read(self) -> list[str]:
        """The statements since the last call, in order."""
        return list(_statements(self.text()))

    def text(self) -> str:
        """What was logged since the last call."""
        with self.path.open("rb") as file:
            file.seek(self.position)
            content = file.read()
        self.position += len(content)
        return content.decode(errors="replace")


@contextmanager
def logging_statements(superuser_url: str, log: Path) -> Iterator[StatementLog]:
    """Have every statement logged while the block runs."""
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        _set_logging(connection, "all")
        statements = StatementLog(log)
        statements.skip()
        try:
            yield statements
        finally:
            _set_logging(connection, "none")


def shortened(statement: str) -> str:
    """A statement on one line, as far as a reader needs it to tell which one it is."""
    line = " ".join(statement.split())
    tables = re.findall(r"\b(?:FROM|INTO|UPDATE|JOIN) ([a-z_]+)", line)
    verbs = re.findall(r"\b(?:INSERT INTO|UPDATE|DELETE FROM) [a-z_]+", line)
    if len(line) <= _SHOWN:
        return line
    if line.startswith("WITH"):
        return "WITH … " + ", ".join(dict.fromkeys(verbs))
    return f"{line[:40]}… FROM " + ", ".join(dict.fromkeys(tables))


def per_turn(turns: list[list[str]], background: frozenset[str]) -> Counter[str]:
    """How often each statement came in all turns together, without the background's."""
    return Counter(statement for turn in turns for statement in turn if statement not in background)


def _set_logging(connection: psycopg.Connection, value: str) -> None:
    """Change it for all sessions, and wait until this one has noticed; the others notice alike."""
    connection.execute(f"ALTER SYSTEM SET log_statement = '{value}'".encode())
    connection.execute("SELECT pg_reload_conf()")
    while connection.execute("SHOW log_statement").fetchone() != (value,):
        pass


def _statements(text: str) -> Iterator[str]:
    """Entries of the application role; an entry ends where the next line with a prefix begins."""
    for entry in re.split(r"^(?=@)", text, flags=re.MULTILINE):
        found = _ENTRY.match(entry)
        if found is None or found["role"] != APP_ROLE:
            continue
        statement = entry[found.end() :].strip()
        if statement.upper() not in _NOT_COUNTED:
            yield statement
