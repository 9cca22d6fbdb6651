"""What Postgres alone can do: the statements of one real turn, replayed by pgbench with many clients at once.

A turn of memserver's is read from Postgres' log, and becomes a pgbench script: the same statements, prepared, in the same
transactions. What differs from turn to turn is carried on: the agent, the key, and what the statements before have returned
(the turn's number, the lease's epoch, the queue's start). So each run writes whole turns, which are counted afterwards.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql

from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.storage.checks import APP_ROLE
from memserver.storage.inbox import PLACES_PER_TURN

DATABASE = "ceiling"
TURNS_EACH = 10
"""With one agent, before a client takes its next one."""
_STATEMENT = re.compile(
    rf"@{APP_ROLE}@LOG:  (?:statement|execute [^:]+): (.*?)\s*(?=^@|\Z)"
    rf"(?:@{APP_ROLE}@DETAIL:  Parameters: (.*?)\s*(?=^@|\Z))?",
    re.DOTALL | re.MULTILINE,
)
_PARAMETER = re.compile(r"\$(\d+) = (NULL|'(?:[^']|'')*')")
_HEAD = f"""\\if :left = 0
\\set number :client_id + :clients * :at
SELECT id AS agent FROM agents WHERE name = :number
\\gset
\\set at (:at + 1) % :each
\\set left {TURNS_EACH}
\\endif
\\set left :left - 1
\\set key random(1000000000000000, 9000000000000000)
"""


@dataclass(frozen=True)
class Recorded:
    """The statements of one turn as they were logged, and what in their parameters belongs to this turn alone."""

    statements: Sequence[tuple[str, Mapping[str, str]]]
    """SQL with `$1`, and the parameters as SQL literals by number."""
    agent: str
    key: str
    turn: int
    epoch: int
    queue_start: int

    def script(self) -> str:
        """The turn for pgbench."""
        carried = {
            self.agent: ":agent",
            self.key: ":key",
            str(self.turn): ":turn",
            str(self.turn * PLACES_PER_TURN): ":until",
            str(self.epoch): ":lease_epoch",
            str(self.queue_start): ":queue_start",
        }
        written, returns = [_HEAD], count(1)
        for statement, parameters in self.statements:
            values = {n: self._value(value, carried) for n, value in parameters.items()}
            parts = re.split(r"\$(\d+)", statement)
            parts[1::2] = [values[n] for n in parts[1::2]]
            written.append("".join(parts))
            if not statement.startswith("WITH"):
                written.append(";\n")
                continue
            written.append("\n\\gset\n")
            if next(returns) == 1:  # the message is stored, so its turn has a number
                written.append(
                    f"\\set until :turn * {PLACES_PER_TURN}\n\\set position :until + 1\n"
                )
        return "".join(written)

    def _value(self, literal: str, carried: Mapping[str, str]) -> str:
        text = literal[1:-1]
        if text[:1] not in {"[", "{"}:
            return carried.get(text, literal)
        # Spaces after colons: a colon before a letter would be one of pgbench's variables.
        spaced = json.dumps(json.loads(text.replace("''", "'")), ensure_ascii=False)
        quoted = "'" + spaced.replace("'", "''") + "'"
        position = self.turn * PLACES_PER_TURN + 1
        return f"replace({quoted}, '{position}', :position)"


def logged(text: str) -> list[tuple[str, dict[str, str]]]:
    """Statements of the application role in a log, with their parameters."""
    return [
        (statement.strip(), dict(_PARAMETER.findall(parameters or "")))
        for statement, parameters in _STATEMENT.findall(text)
    ]


@dataclass(frozen=True)
class Transactions:
    """When each ended, and how long it took: seconds of any clock."""

    ended: Sequence[float]
    took: Sequence[float]


@dataclass(frozen=True)
class Ceiling:
    """A copy of memserver's database, with its agents and their past, for pgbench alone."""

    postgres: EmbeddedPostgres
    folder: Path
    agents: int

    @classmethod
    def copy(
        cls,
        postgres: EmbeddedPostgres,
        database: str,
        recorded: Recorded,
        folder: Path,
        agents: int,
    ) -> "Ceiling":
        """Copy the database, which nobody uses meanwhile."""
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            made = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            connection.execute(made.format(sql.Identifier(DATABASE), sql.Identifier(database)))
        (folder / "turn.pgbench").write_text(recorded.script(), encoding="utf-8")
        return cls(postgres, folder, agents)

    @property
    def superuser_url(self) -> str:
        return self.postgres.url(DATABASE)

    def run(self, clients: int, seconds: float) -> Transactions:
        """Have so many clients work for so long.

        Raises:
            RuntimeError: pgbench failed, or didn't write the turns that it counted.
        """
        before, log = self._written(), self.folder / f"pgbench-{clients}"
        variables = {"left": 0, "at": 0, "clients": clients, "each": self.agents // clients}
        done = subprocess.run(
            [
                self.postgres.binaries().program("pgbench"),
                *("-n", "-M", "prepared", "-f", self.folder / "turn.pgbench"),
                *("-c", str(clients), "-j", str(min(clients, os.cpu_count() or 1))),
                *("-T", str(round(seconds)), "-l", f"--log-prefix={log}"),
                *(f"-D{name}={value}" for name, value in variables.items()),
                self.postgres.url(DATABASE, APP_ROLE),
            ],
            check=False,
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, "PGOPTIONS": "-c memserver.tenant=default"},
        )
        lines = [line.split() for line in _lines(log)]
        if done.returncode or not lines:
            raise RuntimeError(f"pgbench failed:\n{done.stdout}\n{done.stderr[-3000:]}")
        wrote = [after - earlier for after, earlier in zip(self._written(), before, strict=True)]
        if wrote != [len(lines), 2 * len(lines), len(lines)]:
            raise RuntimeError(f"{len(lines)} transactions of pgbench wrote {wrote} rows.")
        return Transactions(
            [int(each[4]) + int(each[5]) / 1e6 for each in lines],
            [int(each[2]) / 1e6 for each in lines],
        )

    def _written(self) -> tuple[int, ...]:
        """Turns that are done, messages, and calls that are done."""
        with psycopg.connect(self.superuser_url) as connection:
            row = connection.execute(
                """SELECT (SELECT count(*) FROM turns WHERE state = 'done'), (SELECT count(*) FROM messages),
                          (SELECT count(*) FROM tool_calls WHERE state = 'done')"""
            ).fetchone()
        assert row is not None
        return row


def _lines(prefix: Path) -> Iterator[str]:
    """What pgbench's threads have logged; the files are gone then."""
    for file in prefix.parent.glob(f"{prefix.name}.*"):
        yield from file.read_text(encoding="ascii").splitlines()
        file.unlink()
