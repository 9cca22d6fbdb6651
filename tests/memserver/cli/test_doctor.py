"""`memserver doctor` on the settings, the application's role and MCP servers: one line for each, with what to do."""

import os
import sys
from pathlib import Path

import pytest

from memserver.cli.doctor import examine_database, examine_mcp_server, examine_settings
from memserver.settings import Settings
from memserver.tools.outbound.mcp import StdioServer
from tests.support.server import OneDatabase


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("MEMSERVER_LLM_CONTEX_WINDOW", "MEMSERVER_LLM_CONTEXT_WINDOW"),
        ("MEMSERVER_DATABASE_READ_URL_FIEL", "MEMSERVER_DATABASE_READ_URL_FILE"),
    ],
)
def test_a_variable_that_is_nearly_a_settings_is_named(variable: str, meant: str) -> None:
    found = examine_settings(Settings(_env_file=None), {variable: "1", "MEMSERVER_HOME": "/tmp"})
    assert (found.well, found.detail) == (False, f"{variable} is none")
    assert meant in found.remedy


def test_variables_of_other_commands_and_files_of_secrets_are_no_mistakes() -> None:
    given = ("MEMSERVER_API_KEY", "MEMSERVER_ADMIN_KEY_FILE", "memserver_port", "HOME")
    found = examine_settings(Settings(_env_file=None), dict.fromkeys(given, "1"))
    assert (found.well, found.detail) == (True, "2 in the environment")


def test_a_file_or_a_tool_of_the_settings_that_is_not_there_is_named(tmp_path: Path) -> None:
    for given, problem in (
        ({"llm_tokenizer": tmp_path / "none"}, "MEMSERVER_LLM_TOKENIZER names"),
        ({"tools": "nobodys_module"}, "There is no module nobodys_module"),
    ):
        found = examine_settings(Settings(_env_file=None, **given), {})  # type: ignore[arg-type]
        assert not found.well
        assert problem in found.detail
        assert found.remedy


def test_an_application_role_that_row_level_security_does_not_bind_is_named(
    database: OneDatabase,
) -> None:
    for url, well in ((database.app, True), (database.superuser, False)):
        by_name = {each.name: each for each in examine_database(database.owner, url)}
        assert by_name["application role"].well == well
        assert "row-level security" in by_name["application role"].detail
    assert "MEMSERVER_DATABASE_APP_URL" in by_name["application role"].remedy


async def test_an_mcp_server_of_the_settings_is_asked_for_its_tools() -> None:
    paths = os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))
    server = StdioServer(sys.executable, ["-m", "tests.support.mcp_demo"], {"PYTHONPATH": paths})
    found = await examine_mcp_server("demo", server)
    assert (found.name, found.well) == ("MCP server demo", True)
    away = await examine_mcp_server("away", StdioServer("/nowhere/at/all"))
    assert not away.well
    assert "can't be reached" in away.detail
    assert "MEMSERVER_MCP_SERVERS" in away.remedy
