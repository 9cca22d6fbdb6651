"""A database URL may name several hosts; `tests/processes/test_failover.py` fails over between them."""

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memserver.settings import Settings
from memserver.storage.database import Database
from memserver.storage.migrate import migrations_folder
from memserver.storage.upgrade import upgrade
from memserver.wiring.database import reachable_database
from tests.support.server import OneDatabase


@pytest.mark.parametrize(
    ("said", "used"), [("", "read-write"), ("?target_session_attrs=primary", "primary")]
)
def test_of_several_hosts_the_one_that_takes_writes_is_used(said: str, used: str) -> None:
    url = f"postgresql://me:secret@one.example:5432,two.example:5433/mine{said}"
    with reachable_database(Settings(_env_file=None, database_url=url)) as urls:
        owner, app = conninfo_to_dict(urls.owner), conninfo_to_dict(urls.app)
    assert (owner["host"], owner["port"]) == ("one.example,two.example", "5432,5433")
    assert owner["target_session_attrs"] == app["target_session_attrs"] == used


async def test_migrations_and_the_pool_reach_the_second_host(database: OneDatabase) -> None:
    hosts = f"/nowhere,{conninfo_to_dict(database.owner)['host']}"
    upgrade(make_conninfo(database.owner, host=hosts), migrations_folder())
    opened = Database(make_conninfo(database.app, host=hosts), pool_size=2)
    await opened.open()
    await opened.check()
    await opened.close()
