"""Finding passages."""

from collections.abc import Sequence

from psycopg import sql

from memserver.messages import FoundPassage, Source
from memserver.storage.collections import Collection
from memserver.storage.database import Transaction
from memserver.storage.passages import check_vector, half_vector, passage_from_row


async def search(
    tx: Transaction, collection: Collection, embedding: Sequence[float], *, limit: int, offset: int
) -> list[FoundPassage]:
    """The passages nearest to a vector by cosine similarity, best first; exact."""
    check_vector(collection, collection.embedding_model, embedding)
    cursor = await tx.execute(
        sql.SQL(
            """SELECT p.*, 1 - n.distance AS similarity
               FROM (SELECT passage_id, embedding <=> %(embedding)s AS distance FROM {}
                     WHERE collection_id = %(collection)s
                     ORDER BY distance, passage_id LIMIT %(limit)s OFFSET %(offset)s) n
               JOIN passages p ON p.collection_id = %(collection)s AND p.id = n.passage_id
               ORDER BY n.distance, n.passage_id"""
        ).format(sql.Identifier(collection.vectors_table)),
        {
            "embedding": half_vector(embedding),
            "collection": collection.id,
            "limit": limit,
            "offset": offset,
        },
    )
    return [
        FoundPassage(
            passage_from_row(row),
            row["similarity"],
            (Source("vector", offset + place, row["similarity"]),),
        )
        for place, row in enumerate(await cursor.fetchall(), 1)
    ]
