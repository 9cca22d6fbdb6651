"""The languages that the passages of a collection are lexed in. Leaves detecting them to `memory.language`."""

from collections import Counter
from collections.abc import Sequence

from memserver.storage.collections import AUTO, Collection
from memserver.storage.database import Transaction

MOST_LANGUAGES = 8
"""Languages of a collection beside english; passages in others are lexed as SIMPLE. A query is lexed in each."""
SIMPLE = "simple"


async def lexing(
    tx: Transaction, collection: Collection, detected: Sequence[str]
) -> tuple[list[str], list[str]]:
    """In which language each of these texts is lexed, and the languages that the collection has with them.

    Args:
        tx: a transaction that holds the collection's row.
        collection: where the texts go.
        detected: the language that each text seems to be in.
    """
    languages = list(collection.languages)
    if collection.language != AUTO:
        return [collection.language] * len(detected), languages
    new = Counter(each for each in detected if each not in {*languages, "english", SIMPLE})
    if new:
        room = MOST_LANGUAGES - len(set(languages) - {SIMPLE})
        cursor = await tx.execute(
            "SELECT DISTINCT cfgname FROM pg_ts_config WHERE cfgname = ANY (%s)", [list(new)]
        )
        there = {row["cfgname"] for row in await cursor.fetchall()}
        languages += [name for name, _ in new.most_common() if name in there][:room]
    lexed = [each if each in {*languages, "english"} else SIMPLE for each in detected]
    if SIMPLE in lexed and SIMPLE not in languages:
        languages.append(SIMPLE)
    return lexed, languages
