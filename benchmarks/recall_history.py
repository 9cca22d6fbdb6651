"""A made-up history of many agents in recall storage, and words in it of which it is known how common they are.

Texts are words of a vocabulary whose letters and frequencies (Zipf) are a language's. Agents talk in turn, so
that nobody's messages lie together in the table: the worst layout there is.
"""

import random
import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from string import ascii_lowercase
from uuid import UUID

import psycopg

import sweet_rl
from memserver.storage.ids import new_id

TENANT = "default"
AGENTS = 1000
LARGE_SHARE = 0.1
"""What one agent has of all messages: 100,000 of a million."""
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
EMBEDDED_SMALL = 100
RARE_WORDS = 300
VOCABULARY = 30_000
STRANGE = 0.2
"""Of the words that are made up: those with a letter that English would not have there."""
CHUNK = 20_000
ENGLISH = Path(sweet_rl.__file__).parent / "warm_start" / "data" / "replies.jsonl"


@dataclass
class History:
    """What was made.

    Attributes:
        large: the agent that has a tenth of all messages.
        small: the others.
        words: how many messages hold each word.
        said: how many messages each agent has.
        messages: how many there are.
    """

    large: UUID
    small: Sequence[UUID]
    words: Counter[str]
    said: Counter[UUID]
    messages: int

    @property
    def embedded(self) -> Sequence[UUID]:
        """The agents whose messages have vectors: the large one, and some others."""
        return [self.large, *self.small[:EMBEDDED_SMALL]]

    @cached_property
    def rare(self) -> list[str]:
        """Words of one message in 10,000 and fewer, that are no part of another word."""
        found = self._between(2, max(3, round(self.messages * 0.0001)))
        chosen = random.Random(0).sample(found, min(len(found), RARE_WORDS))
        text = " ".join(self.words)
        return [word for word in chosen if text.count(word) == 1]

    @cached_property
    def common(self) -> list[str]:
        """Words of one message in 100 and more, up to those in every other one."""
        return self._between(round(self.messages * 0.01), self.messages)

    def _between(self, least: int, most: int) -> list[str]:
        return sorted(word for word, found in self.words.items() if least <= found <= most)


class Speaker:
    """Says messages, always the same ones for a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._vocabulary = _vocabulary(self._random)
        self._weights = list(accumulate(1 / (rank + 3) for rank in range(VOCABULARY)))
        self.words: Counter[str] = Counter()

    def message(self) -> str:
        """A message of some sentences, as people write them."""
        total = self._weights[-1]
        count = min(60, 3 + int(self._random.expovariate(1 / 15)))
        words = [
            self._vocabulary[bisect(self._weights, self._random.random() * total)]
            for _ in range(count)
        ]
        self.words.update(set(words))
        words[0] = words[0].capitalize()
        return " ".join(words) + self._random.choice([".", "!", "?", "…"])

    def agent(self, agents: int) -> int:
        """Who speaks: the first one as often as LARGE_SHARE says."""
        if self._random.random() < LARGE_SHARE:
            return 0
        return 1 + self._random.randrange(agents - 1)


def _vocabulary(chance: random.Random) -> list[str]:
    """English words by how common they are, then words that look like English, names and typing errors."""
    english = Counter(re.findall("[a-z]+", ENGLISH.read_text(encoding="utf-8").lower()))
    known = dict.fromkeys(word for word, _ in english.most_common() if len(word) > 1)
    letters: defaultdict[str, list[str]] = defaultdict(list)
    for word in known:
        padded = f"  {word} "
        for place in range(len(padded) - 2):
            letters[padded[place : place + 2]].append(padded[place + 2])
    while len(known) < VOCABULARY:
        word = "  "
        while not word.endswith(" ", 2):
            word += chance.choice(letters[word[-2:]])
        word = word.strip()
        if chance.random() < STRANGE and word:
            place = chance.randrange(len(word))
            word = word[:place] + chance.choice(ascii_lowercase) + word[place + 1 :]
        if 4 <= len(word) <= 14:
            known[word] = None
    return list(known)


def make_history(
    owner_url: str, messages: int, seed: int, advance: Callable[[int], None]
) -> History:
    """Fill an empty database as its owner, and leave it as autovacuum would.

    Args:
        owner_url: of the owner role.
        messages: how many in all.
        seed: of everything that is made up.
        advance: called with how many were stored since the last call.

    Raises:
        RuntimeError: there are agents in the database.
    """
    with psycopg.connect(owner_url) as connection:
        if connection.execute("SELECT 1 FROM agents LIMIT 1").fetchone():
            raise RuntimeError(
                "The database is not empty: this would be measured too, and deleted."
            )
        agents = make_agents(connection, AGENTS)
        speaker = Speaker(seed)
        said: Counter[UUID] = Counter()
        rows = _rows(speaker, agents, said, messages)
        for first in range(0, messages, CHUNK):
            count = min(CHUNK, messages - first)
            with connection.cursor().copy(
                """COPY messages (agent_id, position, tenant, role, content, tokens, created_at)
                   FROM STDIN"""
            ) as copy:
                for _ in range(count):
                    copy.write_row(next(rows))
            advance(count)
        connection.execute(_INDEX)
    with psycopg.connect(owner_url, autocommit=True) as connection:
        for table in ("messages", "recall_blocks", "message_words", "message_word_shares"):
            connection.execute(f"VACUUM ANALYZE {table}".encode())
    return History(agents[0], agents[1:], speaker.words, said, messages)


# As the indexing job would have left it; one by one it would take five minutes.
_INDEX = """
DROP INDEX message_words_by_key;
INSERT INTO message_words
    SELECT agent_id, position, tenant, role, created_at, lexemes_of('english', content) FROM messages;
CREATE INDEX message_words_by_key ON message_words
    USING gin (search_keys(agent_id, lexemes, '{}', '{}'));
INSERT INTO recall_blocks
    SELECT agent_id, block, min(tenant), min(created_at), max(created_at), array_agg(position ORDER BY position),
           array_agg(created_at ORDER BY position), string_agg(left(role, 1), '' ORDER BY position),
           string_agg(block_text(content), E'\\u0001' ORDER BY position)
    FROM (SELECT *, sum(octet_length(content) + 20) OVER (PARTITION BY agent_id ORDER BY position) / 6200 AS block
          FROM messages) m GROUP BY agent_id, block;
INSERT INTO recall_index (agent_id, tenant, indexed_to, languages, messages)
    SELECT agent_id, min(tenant), max(position) + 1000, '{english}', count(*) FROM messages GROUP BY agent_id;
SELECT count_common_words();
UPDATE agent_state s SET done_turn = i.indexed_to / 1000 - 1, next_turn = i.indexed_to / 1000
    FROM recall_index i WHERE i.agent_id = s.agent_id;
UPDATE recall_index SET waiting = false;
"""


def clear(owner_url: str) -> None:
    """Leave the database as empty as it was."""
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("TRUNCATE agents, collections CASCADE")


def make_agents(connection: psycopg.Connection, count: int) -> list[UUID]:
    """Agents with nothing in their memories."""
    agents = [new_id() for _ in range(count)]
    connection.execute(
        """WITH given AS (SELECT * FROM unnest(%(agents)s::uuid[], %(collections)s::uuid[])
                          AS g (agent, collection)),
                own AS (INSERT INTO collections (id, tenant, name, own, embedding_model, dimension,
                                                 vectors_table)
                        SELECT collection, %(tenant)s, agent::text, true, 'none', 1, 'none' FROM given
                        RETURNING id)
           INSERT INTO agents (id, tenant, name, collection_id)
           SELECT agent, %(tenant)s, agent::text, own.id
           FROM given JOIN own ON own.id = given.collection""",
        {"agents": agents, "collections": [new_id() for _ in agents], "tenant": TENANT},
    )
    connection.execute(
        "INSERT INTO agent_state (agent_id, tenant) SELECT id, tenant FROM agents WHERE tenant = %s",
        [TENANT],
    )
    return agents


def _rows(
    speaker: Speaker, agents: Sequence[UUID], said: Counter[UUID], messages: int
) -> Iterator[tuple[object, ...]]:
    for number in range(messages):
        agent = agents[speaker.agent(len(agents))]
        said[agent] += 1
        role = "user" if said[agent] % 2 else "assistant"
        at = BEGIN + YEAR * (number / messages)
        yield (agent, said[agent] * 1000, TENANT, role, speaker.message(), 20, at)
