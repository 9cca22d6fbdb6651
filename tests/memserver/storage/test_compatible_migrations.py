"""A database that a newer version has migrated serves the older one, too, where the migrations say so; and they may say so only
where it is true: expand first, contract a release later."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import sql

from memserver.errors import SetupError
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.messages import PromptMessage, ToolSpec
from memserver.storage.checks import APP_ROLE
from memserver.storage.inspect import inspect
from memserver.storage.migrate import (
    OWNER_ROLE,
    migrate,
    migrations_folder,
    newest_revision,
    prepare_embedded,
)
from memserver.storage.upgrade import upgrade
from memserver.testing.scripted import Call, ScriptedModel, say
from memserver.testing.scripted_rules import last_user_text
from tests.support.migrating import breaks, further_migrations, schema
from tests.support.migrating import upgrade as upgrade_to
from tests.support.server import OneDatabase, serving

RULE_FROM = "0032"
"""The revision after which each migration says with which code it is compatible."""
AGENT = uuid4()
TEXTS = [f"message {number}" for number in range(6)]
NEWEST = newest_revision()
EXPAND = f"""
compatible_with = '{NEWEST}'
def upgrade():
    op.execute("ALTER TABLE agents ADD COLUMN mood text")
    op.execute("ALTER TABLE turns ADD COLUMN tries integer NOT NULL DEFAULT 0")
    op.execute("CREATE TABLE moods (name text PRIMARY KEY, agent uuid NOT NULL REFERENCES agents (id))")
    op.execute("CREATE INDEX moods_of_agents ON moods (agent)")
"""
FIRST = f"""
SELECT set_config('memserver.tenant', 'default', false);
INSERT INTO collections (id, tenant, name, embedding_model, dimension)
    VALUES ('{AGENT}', 'default', 'ada', 'hashing', 384);
INSERT INTO agents (id, tenant, name, collection_id) VALUES ('{AGENT}', 'default', 'ada', '{AGENT}');
INSERT INTO agent_state (agent_id, tenant, next_turn, done_turn, queue_start, message_count)
    VALUES ('{AGENT}', 'default', 3, 2, 1000, 2);
INSERT INTO turns (agent_id, turn, tenant, kind, state, steps, stop_reason, posted_by, finished_at)
    VALUES ('{AGENT}', 1, 'default', 'message', 'done', 1, 'message_sent', 'w', now()),
           ('{AGENT}', 2, 'default', 'message', 'failed', 0, 'error', 'w', now());
INSERT INTO messages (agent_id, position, tenant, role, content, tokens)
    VALUES ('{AGENT}', 1000, 'default', 'user', 'Where do otters live?', 5),
           ('{AGENT}', 1001, 'default', 'assistant', 'In rivers.', 3);
INSERT INTO tool_calls (agent_id, position, tenant, call_id, name, arguments, state, result, epoch, finished_at)
    VALUES ('{AGENT}', 1001, 'default', 'call1', 'send_message', '{{"message": "In rivers."}}', 'done', 'None', 1, now());
INSERT INTO sections (id, tenant, content, character_limit) VALUES ('{AGENT}', 'default', 'Likes otters.', 2000);
INSERT INTO agent_sections VALUES ('{AGENT}', 'human', 'default', '{AGENT}', 1);
"""
CONTRACT = """
def upgrade():
    op.execute("ALTER TABLE agents DROP COLUMN model")
"""


def echo(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Call:
    return say(f"echo: {last_user_text(prompt)}")


@pytest.fixture
def empty(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The owner's URL of a database without a schema."""
    name = f"empty_{uuid4().hex}"
    prepare_embedded(postgres.url(), name)
    yield postgres.url(name, OWNER_ROLE)
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


async def test_turns_go_on_over_an_expanding_migration_and_another_server_starts(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel(echo)) as server:
        agents = [await server.create_agent() for _ in range(4)]
        with further_migrations(EXPAND) as folder:
            first, *rest = (server.say(agent, text) for agent in agents for text in TEXTS)
            talking = asyncio.gather(*rest)
            await first  # the others run
            await asyncio.to_thread(upgrade, database.owner, folder)
            assert [each["stop_reason"] for each in await talking] == ["message_sent"] * len(rest)
        for agent in agents:
            assert (await server.say(agent, "after"))["text"] == "echo: after"
    assert migrate(database.owner) == "9001"
    report = inspect(database.owner)
    assert (report.revision, report.oldest) == ("9001", NEWEST)
    async with serving(database, ScriptedModel(echo)) as server:
        for agent in agents:
            assert (await server.say(agent, "later"))["text"] == "echo: later"
            history = await server.get(f"{agent}/messages", order="asc", limit=100)
            said = [each["text"] for each in history["items"]]
            asked = sorted(said[: 2 * len(TEXTS) : 2])
            assert asked == sorted(TEXTS)
            assert said[1::2] == [f"echo: {text}" for text in said[::2]]


async def test_a_database_of_the_first_schema_serves_with_what_it_holds(
    postgres: EmbeddedPostgres, empty: str
) -> None:
    upgrade_to(empty, "0001")
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(FIRST.encode())
    assert migrate(empty) == NEWEST
    name = empty.partition("?")[0].rpartition("/")[2]
    database = OneDatabase(postgres.url(name, APP_ROLE), empty, postgres.url(name))
    async with serving(database, ScriptedModel(echo)) as server:
        [agent] = (await server.get(""))["items"]
        assert (await server.say(agent["id"], "And now?"))["text"] == "echo: And now?"
        history = await server.get(f"{agent['id']}/messages", order="asc")
        section = await server.get(f"{agent['id']}/working-context/human")
        turn = await server.get(f"{agent['id']}/turns/1")
        found = await server.get(f"{agent['id']}/recall/search", query="otters")
    said = [(each["position"], each["text"]) for each in history["items"]]
    assert said[:2] == [(1000, "Where do otters live?"), (1001, "In rivers.")]
    assert said[2:] == [(3000, "And now?"), (3001, "echo: And now?")]
    assert "Likes otters." in section.values()
    assert turn["stop_reason"] == "message_sent"
    assert "Where do otters live?" in str(found)


def test_a_server_does_not_start_over_a_migration_that_takes_away_what_it_needs(
    database: OneDatabase,
) -> None:
    with further_migrations(EXPAND, CONTRACT) as folder:
        upgrade(database.owner, folder)
    with pytest.raises(SetupError, match="9002, newer than this memserver's"):
        migrate(database.owner)


def test_what_was_once_incompatible_stays_so(database: OneDatabase) -> None:
    with further_migrations(CONTRACT, EXPAND) as folder:
        upgrade(database.owner, folder)
    assert inspect(database.owner).oldest == "9001"


def test_a_new_database_is_for_this_version(empty: str) -> None:
    assert migrate(empty) == NEWEST
    report = inspect(empty)
    assert report.oldest is not None
    assert report.oldest <= NEWEST
    assert report.can_be_used_by(NEWEST)


@pytest.mark.parametrize(
    ("statement", "broken"),
    [
        ("ALTER TABLE agents DROP COLUMN model", "column agents.model"),
        ("ALTER TABLE agents RENAME COLUMN model TO brain", "column agents.model"),
        ("ALTER TABLE agents RENAME TO minds", "column agents.model"),
        ("DROP TABLE webhooks CASCADE", "column webhooks.url"),
        ("ALTER TABLE turns ALTER COLUMN steps TYPE bigint", "column turns.steps"),
        ("ALTER TABLE agents ALTER COLUMN model SET NOT NULL", "column agents.model"),
        ("ALTER TABLE agents ADD COLUMN mood text NOT NULL", "column agents.mood"),
        ("ALTER TABLE agents ADD CHECK (length(name) < 9)", "constraint agents.agents_name_check"),
        ("CREATE INDEX slow ON messages (content)", "index slow"),
        ("DROP FUNCTION agents_waiting", "function agents_waiting(integer)"),
    ],
)
def test_what_an_expanding_migration_may_not_do_is_found(
    database: OneDatabase, statement: str, broken: str
) -> None:
    before = schema(database.owner)
    with psycopg.connect(database.owner) as connection:
        connection.execute(statement.encode())
    assert broken in breaks(before, schema(database.owner))


def test_what_an_expanding_migration_may_do_breaks_nothing(database: OneDatabase) -> None:
    before = schema(database.owner)
    with further_migrations(EXPAND) as folder:
        upgrade(database.owner, folder)
    after = schema(database.owner)
    assert "column agents.mood" in after
    assert breaks(before, after) == []


def held(folder: Path) -> list[tuple[str, str, str | None]]:
    """The versions under the rule, oldest first: the one before each, its own, and the oldest code that it serves."""
    config = Config()
    config.set_main_option("script_location", str(folder))
    scripts = ScriptDirectory.from_config(config)
    found = [
        (each.down_revision, each.revision, getattr(each.module, "compatible_with", None))
        for each in scripts.walk_revisions()
    ]
    return [version for version in reversed(found) if version[1] > RULE_FROM]  # type: ignore[misc]


def unruly(owner: str, folder: Path) -> list[str]:
    """What the versions under the rule say wrongly of themselves."""
    found = []
    for before, revision, compatible in held(folder):
        if compatible is None:
            found.append(f"{revision} doesn't say which code it serves")
            continue
        upgrade_to(owner, before, folder)
        found_before = schema(owner)
        upgrade_to(owner, revision, folder)
        if compatible < revision:
            found += [f"{revision}: {name}" for name in breaks(found_before, schema(owner))]
    return found


def test_migrations_keep_to_what_they_say(empty: str) -> None:
    assert unruly(empty, migrations_folder()) == []


def test_a_migration_that_does_not_is_found(empty: str) -> None:
    wrong = CONTRACT.replace("def", f"compatible_with = '{NEWEST}'\ndef", 1)
    with further_migrations(EXPAND, wrong, "def upgrade(): pass") as folder:
        assert unruly(empty, folder) == [
            "9002: column agents.model",
            "9003 doesn't say which code it serves",
        ]


async def test_a_migration_waits_for_no_lock_in_front_of_the_servers_and_tries_again(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memserver.storage.upgrade.LOCK_SECONDS", 0.1)
    reader = psycopg.connect(database.superuser)
    reader.execute("SELECT 1 FROM agents")  # its lock is held to the end of its transaction
    monkeypatch.setattr("memserver.storage.upgrade.time.sleep", lambda _: reader.rollback())
    with further_migrations(EXPAND) as folder:
        upgrade(database.owner, folder)
    reader.close()
    assert inspect(database.owner).revision == "9001"


def test_the_docs_name_the_revision_from_which_on_the_rule_holds() -> None:
    page = (Path(__file__).parents[3] / "docs" / "upgrading.md").read_text()
    assert re.search(rf"after {RULE_FROM}\b", page)
