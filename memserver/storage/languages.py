"""The languages that the passages of a collection are lexed in. Leaves detecting them to `memory.language`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from memserver.storage import collections, jobs
from memserver.storage.collections import AUTO, CollectionRow
from memserver.storage.database import Transaction
from memserver.storage.jobs import Job
from memserver.storage.rows import fetch_all, fetch_values

JOB = "lex_again"
AT_ONCE = 500  # passages that are lexed again in one transaction
MOST_LANGUAGES = 8
"""Languages of a collection beside english; passages in others are lexed as SIMPLE. A query is lexed in each."""
SIMPLE = "simple"


@dataclass(frozen=True, slots=True)
class PendingPassage:
    """A passage that is to be worked on again, as it was read."""

    id: UUID
    number: int
    text: str
    updated_at: datetime


async def choose(
    tx: Transaction, language: str, present: Sequence[str], detected: Sequence[str]
) -> tuple[list[str], list[str]]:
    """In which language each of these texts is lexed, and the languages that there are with them.

    `tx` holds the row which has `present`, the languages that there are. `language` is of the collection to which the texts
    go, or of the agent that said them; or AUTO: then it is `detected`, what each text seems to be in.
    """
    languages = list(present)
    if language != AUTO:
        return [language] * len(detected), languages
    new = Counter(each for each in detected if each not in {*languages, "english", SIMPLE})
    if new:
        room = MOST_LANGUAGES - len(set(languages) - {SIMPLE})
        query = "SELECT DISTINCT cfgname FROM pg_ts_config WHERE cfgname = ANY (%s)"
        there = set(await fetch_values(tx, query, [list(new)]))
        languages += [name for name, _ in new.most_common() if name in there][:room]
    lexed = [each if each in {*languages, "english"} else SIMPLE for each in detected]
    if SIMPLE in lexed and SIMPLE not in languages:
        languages.append(SIMPLE)
    return lexed, languages


async def change(tx: Transaction, collection_id: UUID, language: str) -> CollectionRow:
    """Change a collection's language; a job lexes its passages again.

    Until that is done a query is lexed in the old one, too.
    """
    collection = await collections.lock(tx, collection_id)
    if language == collection.language:
        return collection
    await collections.check_language(tx, language)
    old = "english" if collection.language == AUTO else collection.language
    await tx.execute(
        """UPDATE collections SET language = %s, languages = %s, relexed_to = 0, edited_at = now()
           WHERE id = %s""",
        [language, sorted({*collection.languages, old}), collection_id],
    )
    await queue(tx, collection)
    return await collections.get(tx, collection_id)


async def queue(tx: Transaction, collection: CollectionRow) -> None:
    """Have a collection's passages lexed again, from where that stands."""
    arguments = {"collection": str(collection.id)}
    await jobs.defer(tx, Job(JOB, collection.tenant, arguments, key=str(collection.id)))


async def next_to_relex(tx: Transaction, collection: CollectionRow) -> list[PendingPassage]:
    """The next passages that may be lexed in another language than their collection's; none when all are done."""
    query = """SELECT id, number, content AS text, updated_at FROM passages
               WHERE collection_id = %s AND number > %s ORDER BY number LIMIT %s"""
    return await fetch_all(
        tx, PendingPassage, query, [collection.id, collection.relexed_to, AT_ONCE]
    )


async def relex(
    tx: Transaction,
    seen: CollectionRow,
    passages: Sequence[PendingPassage],
    detected: Sequence[str],
) -> None:
    """Lex passages in the languages that they are in, if the collection stands where it was seen."""
    collection = await collections.lock(tx, seen.id)
    if (collection.language, collection.relexed_to) != (seen.language, seen.relexed_to):
        return
    lexed_in, languages = await choose(tx, collection.language, collection.languages, detected)
    await tx.execute(
        """WITH lexed AS (
               UPDATE passages p SET lexemes = lexemes_of(n.language, p.content)
               FROM unnest(%(ids)s::uuid[], %(times)s::timestamptz[], %(lexed_in)s::text[])
                    AS n (id, updated_at, language)
               WHERE p.collection_id = %(collection)s
                 AND (p.id, p.updated_at) = (n.id, n.updated_at)
           )
           UPDATE collections SET languages = %(languages)s, relexed_to = %(to)s
           WHERE id = %(collection)s""",
        {
            "collection": collection.id,
            "ids": [passage.id for passage in passages],
            "times": [passage.updated_at for passage in passages],
            "lexed_in": lexed_in,
            "languages": languages,
            "to": passages[-1].number,
        },
    )


async def end(tx: Transaction, seen: CollectionRow) -> None:
    """All passages are lexed in their collection's language: the old ones no longer count, nor do its common words."""
    collection = await collections.lock(tx, seen.id)
    if (collection.language, collection.relexed_to) != (seen.language, seen.relexed_to):
        return
    await tx.execute(
        """UPDATE collections SET relexed_to = NULL, words_counted = 0,
               languages = CASE WHEN language = %s THEN languages ELSE '{}' END
           WHERE id = %s""",
        [AUTO, collection.id],
    )
