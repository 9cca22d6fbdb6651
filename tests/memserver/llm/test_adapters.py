"""The commands on a vLLM's adapters, against the scripted endpoint and against ones that refuse."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from memserver.errors import (
    InvalidInput,
    MemserverError,
    ModelRejected,
    ModelUnavailable,
    NotFound,
    SetupError,
)
from memserver.llm.adapters import CONFIG, WEIGHTS, find_adapter, versioned_name
from memserver.local.engine.address import publish_address
from memserver.local.engine.paths import EnginePaths
from memserver.testing.scripted_rules import RULES
from memserver.testing.scripted_server import Abilities, create_scripted_app
from tests.support.adapters import make_adapter, models
from tests.support.http_app import Current
from tests.support.server import OneDatabase, ScriptedModel
from tests.support.server import serving as serving_memserver


@pytest.fixture
def url(current: Current, served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)  # without a .env
    monkeypatch.setenv("MEMSERVER_HOME", str(tmp_path / "home"))
    current.app = create_scripted_app(RULES["echo"], context_window=4096)
    return served


def error_of(url: str, *arguments: str) -> MemserverError:
    done = models(url, *arguments)
    assert isinstance(done.exception, MemserverError), done.output
    return done.exception


def test_an_adapter_is_loaded_under_a_name_of_its_version_listed_and_unloaded(
    url: str, tmp_path: Path
) -> None:
    folder = make_adapter(tmp_path / "adapter")
    loaded = models(url, "add", "memory", str(folder))
    name = loaded.stdout.strip()
    digest = name.removeprefix("memory-")
    assert (loaded.exit_code, len(digest)) == (0, 8)
    listed = models(url, "list").stdout
    assert "│ scripted " in listed
    assert "4096" in listed
    [row] = [line for line in listed.splitlines() if name in line]
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == [name, "adapter", "scripted", "4096", str(folder)]
    unloaded = models(url, "unload", name)
    assert (unloaded.exit_code, unloaded.stdout) == (0, f"Unloaded {name}.\n")
    assert name not in models(url, "list").stdout


def test_the_same_content_again_is_loaded_already_and_other_content_is_another_version(
    url: str, tmp_path: Path
) -> None:
    one, same, other = (
        models(url, "add", "memory", str(make_adapter(tmp_path / place, strength=strength)))
        for place, strength in (("a", 0), ("b", 0), ("c", 0.1))
    )
    assert one.stderr == "It was trained on SmolLM2-135M-Instruct; the endpoint has scripted. " + (
        "Check that this is the same.\n"
    )
    assert one.stdout == same.stdout
    assert "It was loaded already." in same.stderr
    assert other.stdout != one.stdout
    assert "loaded already" not in other.stderr


def test_a_changed_configuration_is_another_version(tmp_path: Path) -> None:
    digests = set()
    for alpha in (8, 16):
        folder = find_adapter(str(make_adapter(tmp_path / str(alpha), lora_alpha=alpha)))
        assert folder is not None
        digests.add(folder.digest)
    assert len(digests) == 2


def test_a_relative_path_is_sent_whole(url: str, tmp_path: Path) -> None:
    make_adapter(tmp_path / "adapter")
    assert models(url, "add", "memory", "adapter").exit_code == 0
    assert str(tmp_path / "adapter") in models(url, "list").stdout


def test_a_folder_that_only_the_endpoint_sees_needs_a_version(url: str) -> None:
    error = error_of(url, "add", "memory", "/there/adapter")
    assert isinstance(error, InvalidInput)
    assert "--version" in error.hint
    refused = error_of(url, "add", "memory", "/there/adapter", "--version", "3")
    assert "No adapter found for /there/adapter" in refused.message


def test_a_given_version_goes_before_the_hash(url: str, tmp_path: Path) -> None:
    folder = str(make_adapter(tmp_path / "adapter"))
    assert models(url, "add", "memory", folder, "--version", "r2").stdout == "memory-r2\n"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", "é"])
def test_a_name_that_can_not_be_one_is_reported(name: str) -> None:
    with pytest.raises(InvalidInput, match="can't be in an adapter's name"):
        versioned_name(name, None, "1")


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ({"peft_type": "IA3"}, "of the kind 'IA3', not LORA"),
        ({"peft_type": None}, "of the kind None"),
        ({"base_model_name_or_path": None}, "names no base_model_name_or_path"),
        ({"r": 0}, "rank r is 0"),
        ({"r": "8"}, "rank r is '8'"),
    ],
)
def test_a_folder_that_is_no_lora_adapter_is_reported_before_anything_is_sent(
    tmp_path: Path, fields: dict[str, object], reported: str
) -> None:
    folder = make_adapter(tmp_path, **fields)
    error = error_of("http://127.0.0.1:9/v1", "add", "memory", str(folder))
    assert isinstance(error, InvalidInput)
    assert reported in error.message


@pytest.mark.parametrize("missing", [CONFIG, WEIGHTS])
def test_a_file_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    folder = make_adapter(tmp_path)
    (folder / missing).unlink()
    with pytest.raises(InvalidInput, match=f"No such file or directory: {folder / missing}"):
        find_adapter(str(folder))
    with pytest.raises(InvalidInput, match="Not a directory"):
        find_adapter(str(make_adapter(tmp_path / "whole") / WEIGHTS))


@pytest.mark.parametrize("text", ["{", "[]", "\udcff"])
def test_a_configuration_that_is_none_is_reported(tmp_path: Path, text: str) -> None:
    folder = make_adapter(tmp_path)
    (folder / CONFIG).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InvalidInput, match=r"no JSON|not of a LoRA adapter"):
        find_adapter(str(folder))


def test_unloading_what_is_not_loaded_says_what_is(url: str, tmp_path: Path) -> None:
    name = models(url, "add", "memory", str(make_adapter(tmp_path))).stdout.strip()
    for wrong in ("memory", "scripted"):
        error = error_of(url, "unload", wrong)
        assert isinstance(error, NotFound)
        assert error.hint == f"It has: {name}."


async def test_unloading_says_which_agents_still_name_it(
    url: str, tmp_path: Path, database: OneDatabase
) -> None:
    async with serving_memserver(database, ScriptedModel()) as server:
        for name, model in (("sam", "memory-1"), ("alex", "memory-1"), ("kim", None)):
            await server.create_agent(name=name, model=model)

    def unload() -> str:
        folder = str(make_adapter(tmp_path))
        assert models(url, "add", "memory", folder, "--version", "1").exit_code == 0
        set_ = {
            "MEMSERVER_DATABASE_URL": database.owner,
            "MEMSERVER_DATABASE_APP_URL": database.app,
        }
        return models(url, "unload", "memory-1", **set_).stderr

    reported = await asyncio.to_thread(unload)
    assert reported == "2 agents still name it and can't answer: alex, sam\n"


def test_unloading_makes_no_database_to_look_into(url: str, tmp_path: Path) -> None:
    folder = str(make_adapter(tmp_path / "adapter"))
    models(url, "add", "memory", folder, "--version", "1")
    done = models(url, "unload", "memory-1")
    assert "not known: no database can be reached" in done.stderr
    assert not (tmp_path / "home").exists()


def test_an_endpoint_without_runtime_adapters_is_reported_with_what_to_set(
    url: str, tmp_path: Path, current: Current
) -> None:
    current.app = create_scripted_app(RULES["echo"], abilities=Abilities(adapters=False))
    error = error_of(url, "add", "memory", str(make_adapter(tmp_path)))
    assert isinstance(error, SetupError)
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1" in error.hint
    assert "--enable-lora" in error.hint


@pytest.mark.parametrize(
    ("status", "reported", "kind", "hint"),
    [
        (500, "Call failed: LoRA is not enabled. Use --enable-lora.", SetupError, "--enable-lora"),
        (403, "Forbidden", SetupError, "--enable-lora"),
        (405, "Method Not Allowed", SetupError, "--enable-lora"),
        (
            500,
            "LoRA rank 64 is greater than max_lora_rank 16.",
            InvalidInput,
            "--max-lora-rank",
        ),
        (401, "Unauthorized", ModelRejected, "MEMSERVER_LLM_API_KEY"),
        (503, "Loading", ModelUnavailable, ""),
    ],
)
def test_what_vllm_refuses_is_reported(
    url: str,
    tmp_path: Path,
    current: Current,
    status: int,
    reported: str,
    kind: type[MemserverError],
    hint: str,
) -> None:
    async def models_of(_: Request) -> Response:
        return JSONResponse({"data": [{"id": "base"}]})

    async def refuse(_: Request) -> Response:
        return JSONResponse({"error": {"message": reported, "code": status}}, status)

    current.app = Starlette(
        routes=[
            Route("/v1/models", models_of),
            Route("/v1/load_lora_adapter", refuse, methods=["POST"]),
        ]
    )
    error = error_of(url, "add", "memory", str(make_adapter(tmp_path)))
    assert type(error) is kind
    assert hint in error.hint


def test_an_endpoint_that_is_away_is_reported(tmp_path: Path) -> None:
    folder = str(make_adapter(tmp_path))
    for arguments in (["list"], ["add", "memory", folder], ["unload", "memory-1"]):
        assert isinstance(error_of("http://127.0.0.1:9/v1", *arguments), ModelUnavailable)


def test_without_an_endpoint_the_setting_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMSERVER_HOME", str(tmp_path))
    done = models("", "list", MEMSERVER_LLM_BASE_URL=None)
    assert isinstance(done.exception, SetupError)
    for name in ("MEMSERVER_LLM_BASE_URL", "MEMSERVER_LOCAL_ADAPTERS"):
        assert name in done.exception.hint


def test_the_engine_of_a_running_server_is_found_until_the_server_ends(
    url: str, tmp_path: Path
) -> None:
    file = EnginePaths(tmp_path / "home").address
    file.parent.mkdir(parents=True)
    folder = str(make_adapter(tmp_path / "adapter"))
    here: dict[str, str | None] = {"MEMSERVER_LLM_BASE_URL": None}
    with publish_address(file, "http://127.0.0.1:9/v1"), publish_address(file, url):
        added = models("", "add", "memory", folder, **here)
        by_its_old_name = models("", "load", "memory", folder, **here)
    assert added.exit_code == 0, added.output
    assert by_its_old_name.stdout == added.stdout
    assert isinstance(models("", "list", **here).exception, SetupError)


def test_a_local_model_that_is_still_loading_is_waited_for(
    current: Current, url: str, tmp_path: Path
) -> None:
    file = EnginePaths(tmp_path / "home").address
    file.parent.mkdir(parents=True)
    ready, asked = current.app, []

    async def loading(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        app = JSONResponse({"error": {"message": "loading"}}, 503) if len(asked) < 5 else ready
        await app(scope, receive, send)

    current.app = loading
    with publish_address(file, url):
        listed = models("", "list", MEMSERVER_LLM_BASE_URL=None)
    assert listed.exit_code == 0, listed.output
    assert "scripted" in listed.stdout
    assert listed.stderr == "The local model is still loading: waiting for it.\n"


def test_what_a_killed_server_leaves_behind_is_no_engine(url: str, tmp_path: Path) -> None:
    file = EnginePaths(tmp_path / "home").address
    file.parent.mkdir(parents=True)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    file.write_text(f"{url}\n{ended.pid}\n")
    error = models("", "list", MEMSERVER_LLM_BASE_URL=None).exception
    assert isinstance(error, SetupError)
    assert "no local engine runs" in error.message
