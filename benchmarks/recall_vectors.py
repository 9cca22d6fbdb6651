"""Made-up vectors for messages of recall storage: clustered, of a low dimension within a high one, as texts' are."""

from collections.abc import Callable
from uuid import UUID

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector
from pgvector.psycopg import register_vector
from psycopg import sql

from benchmarks.recall_history import TENANT, History
from memserver.storage.message_vectors import LARGE

MODEL = "benchmark"
DIMENSION = 384
INTRINSIC = 32
CLUSTERS = 500
CHUNK = 5000


class Vectors:
    """Makes vectors, always the same ones for a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._basis = self._random.normal(size=(INTRINSIC, DIMENSION)) / np.sqrt(INTRINSIC)
        self._centres = self._random.normal(size=(CLUSTERS, INTRINSIC))

    def make(self, count: int) -> NDArray[np.float64]:
        """So many of unit length, each near one of the clusters."""
        centres = self._centres[self._random.integers(CLUSTERS, size=count)]
        low = centres + 0.6 * self._random.normal(size=(count, INTRINSIC))
        high = low @ self._basis + 0.02 * self._random.normal(size=(count, DIMENSION))
        unit: NDArray[np.float64] = high / np.linalg.norm(high, axis=1, keepdims=True)
        return unit


def add_vectors(
    owner_url: str, history: History, vectors: Vectors, advance: Callable[[int], None]
) -> None:
    """Give the messages of some agents vectors, as the embedding job would have left them."""
    with psycopg.connect(owner_url) as connection:
        register_vector(connection)
        row = connection.execute(
            "SELECT message_vectors_table(%s, %s)", [MODEL, DIMENSION]
        ).fetchone()
        assert row is not None
        table, index = sql.Identifier(row[0]), sql.Identifier(f"{row[0]}_hnsw")
        [definition] = connection.execute(
            "SELECT pg_get_indexdef(%s::regclass)", [f"{row[0]}_hnsw"]
        ).fetchone() or [""]
        connection.execute(sql.SQL("DROP INDEX {}").format(index))
        for agent in history.embedded:
            _store(connection, table, agent, history.said[agent], vectors)
            connection.execute(
                """INSERT INTO recall_embeddings
                       (agent_id, model, dimension, tenant, table_name, embedded_to, messages, large_to)
                   VALUES (%s, %s, %s, %s, %s, %s, %s, %s)""",
                [
                    *(agent, MODEL, DIMENSION, TENANT, row[0]),
                    *(history.said[agent] * 1000 + 1000, history.said[agent]),
                    history.said[agent] * 1000 + 1000 if history.said[agent] > LARGE else 0,
                ],
            )
            advance(history.said[agent])
        connection.execute("SET LOCAL maintenance_work_mem = '512MB'")
        connection.execute(definition.replace(" ON ONLY ", " ON ").encode())
        connection.execute(sql.SQL("ANALYZE {}").format(table))


def exact_best(
    owner_url: str, agent: UUID, vector: NDArray[np.float64], count: int
) -> frozenset[int]:
    """The positions of an agent's nearest messages, all compared."""
    with psycopg.connect(owner_url) as connection:
        register_vector(connection)
        row = connection.execute(
            "SELECT message_vectors_table(%s, %s)", [MODEL, DIMENSION]
        ).fetchone()
        assert row is not None
        rows = connection.execute(
            sql.SQL(
                """SELECT position FROM {} WHERE agent_id = %s
                   ORDER BY (embedding <=> %s) + 0 LIMIT %s"""
            ).format(sql.Identifier(row[0])),
            [agent, HalfVector(vector), count],
        ).fetchall()
    return frozenset(position for (position,) in rows)


def _store(
    connection: psycopg.Connection,
    table: sql.Identifier,
    agent: UUID,
    messages: int,
    vectors: Vectors,
) -> None:
    statement = sql.SQL(
        "COPY {} (agent_id, position, part, tenant, embedding, large) FROM STDIN (FORMAT BINARY)"
    ).format(table)
    with connection.cursor().copy(statement) as copy:
        copy.set_types(["uuid", "int8", "int4", "text", "halfvec", "bool"])
        for first in range(0, messages, CHUNK):
            for number, vector in enumerate(vectors.make(min(CHUNK, messages - first)), first + 1):
                copy.write_row(
                    (agent, number * 1000, 0, TENANT, HalfVector(vector), messages > LARGE)
                )
