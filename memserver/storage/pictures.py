"""Pictures as they are stored: each once for a tenant, as long as a message shows it. Knows no format."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from psycopg.types.json import Jsonb

from memserver.messages import JsonObject, Picture
from memserver.storage.database import Transaction
from memserver.storage.rows import fetch_values

_STORED = ("digest", "media_type", "width", "height", "name")


def as_json(pictures: Sequence[Picture]) -> list[JsonObject] | None:
    """What a message has of its pictures; None where it shows none."""
    return [{name: getattr(each, name) for name in _STORED} for each in pictures] or None


def from_json(stored: Sequence[JsonObject] | None) -> tuple[Picture, ...]:
    """The pictures of a message, without their bytes."""
    return tuple(Picture(**each) for each in stored) if stored else ()


async def keep(tx: Transaction, tenant: str, pictures: Iterable[Picture]) -> None:
    """Store pictures that a message of the same transaction shows; those that are there already stay.

    After the message, whose agent is locked then: so does who deletes them.
    """
    for digest, data in sorted({each.digest: each.data for each in pictures}.items()):
        await tx.execute(
            """INSERT INTO pictures (tenant, digest, data) VALUES (%s, %s, %b)
               ON CONFLICT (tenant, digest) DO UPDATE SET kept_at = now()""",
            [tenant, digest, data],
        )


async def read(tx: Transaction, digests: Iterable[str]) -> Mapping[str, bytes]:
    cursor = await tx.execute(
        "SELECT digest, data FROM pictures WHERE digest = ANY (%s)", [sorted(set(digests))]
    )
    return {row["digest"]: bytes(row["data"]) for row in await cursor.fetchall()}


async def shown_by(tx: Transaction, agent_id: UUID) -> list[str]:
    return await fetch_values(
        tx,
        """SELECT DISTINCT p->>'digest' FROM messages m, jsonb_array_elements(m.pictures) p
           WHERE m.agent_id = %s AND m.pictures IS NOT NULL ORDER BY 1""",
        [agent_id],
    )


async def release(tx: Transaction, digests: Sequence[str]) -> None:
    """Delete those of these that no message shows any more, after the messages were deleted or changed.

    They are locked first: who is about to show one again waits, and then stores it again.
    """
    if not digests:
        return
    await tx.execute(
        "SELECT 1 FROM pictures WHERE digest = ANY (%s) ORDER BY digest FOR UPDATE", [digests]
    )
    await tx.execute(
        """DELETE FROM pictures p WHERE p.digest = ANY (%s) AND NOT EXISTS (
               SELECT FROM messages m WHERE m.tenant = p.tenant AND m.pictures IS NOT NULL
               AND m.pictures @> jsonb_build_array(jsonb_build_object('digest', p.digest)))""",
        [digests],
    )


def jsonb(pictures: Sequence[Picture]) -> Jsonb | None:
    stored = as_json(pictures)
    return None if stored is None else Jsonb(stored)
