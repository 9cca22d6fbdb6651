"""What the server's operator looks at: load, the models' endpoint, reports of evaluations and trainings."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memserver.testing.scripted import ScriptedModel, say
from tests.support.model_endpoint import endpoint, serving_over_http
from tests.support.server import OneDatabase, serving

SCORES = {"systems": {"memserver": {"scores": {"f1": {"mean": 0.5, "low": 0.4, "high": 0.6}}}}}


def write(folder: Path, **files: Any) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    manifest = {"task": "locomo", "examples": ["a", "b"]}
    write(folder / "locomo" / "monday", manifest__json=manifest, results__json=SCORES)
    logged = [{"step": step, "loss": 1 / step, "epoch": step} for step in range(1, 1001)]
    lines = "\n".join(map(json.dumps, [*logged, {"step": 1000, "train_runtime": 3}]))
    write(folder / "actor", metrics__jsonl=lines + '\n{"step": 10', training__json={"rank": 16})
    write(folder / "colbench", results__json={"tables": []})
    outside = tmp_path / "secret"
    write(outside, manifest__json={"task": "secret"}, results__json={})
    (folder / "link").symlink_to(outside, target_is_directory=True)
    linked = folder / "linked"
    write(linked, manifest__json={"task": "x"})
    (linked / "results.json").symlink_to(outside / "results.json")
    return folder


async def test_the_operator_sees_the_load_of_all_tenants_and_nobody_else_does(
    database: OneDatabase, results: Path
) -> None:
    model = ScriptedModel(lambda *_: say("Hello!"))
    async with serving(database, model, results_dir=results) as server:
        await server.operate()
        acme = await server.create_tenant("acme")
        made = await server.http.post("/v1/agents", json={"name": "sam"}, headers=acme)
        url = f"/v1/agents/{made.json()['id']}/messages"
        for text in ("One.", "Two."):
            await server.http.post(url, json={"text": text}, headers=acme)
        load = (await server.http.get("/v1/operations", params={"minutes": 5})).json()
        paths = ("operations", "endpoint", "reports", "reports/actor")
        refused = [await server.http.get(f"/v1/{path}", headers=acme) for path in paths]
    assert len(load["minutes"]) == 5
    assert sum(each["turns"] for each in load["minutes"]) == 2
    assert load["turn_seconds"]["p50"] > 0
    assert load["step_seconds"]["database"] > 0
    assert load["turns"] == {"waiting": 0, "running": 0, "waiting_since": None}
    assert load["errors"] == {}
    assert ("index_messages", "todo") in {(job["name"], job["state"]) for job in load["jobs"]}
    assert load["database_bytes"] > 1_000_000
    assert [each.json()["error"]["code"] for each in refused] == ["forbidden"] * len(paths)


async def test_what_a_minute_brought_is_kept_when_it_is_over(database: OneDatabase) -> None:
    def write(statement: str) -> None:
        with psycopg.connect(database.superuser) as connection:
            connection.execute(statement.encode())

    then = datetime.now(UTC) - timedelta(minutes=5)
    async with serving(database, ScriptedModel(lambda *_: say("Hello!"))) as server:
        agent = await server.create_agent()
        for seconds in (100, 200, 400):
            await server.say(agent, "Then.")
            write(
                f"""UPDATE turn_steps SET at = '{then}', seconds = {seconds},
                    error = 'model_timeout', asking = 3, prompt_tokens = 7 WHERE error IS NULL"""
            )
        await server.say(agent, "Now.")
        before = (await server.http.get("/v1/operations", params={"minutes": 10})).json()
        write("DELETE FROM turn_steps WHERE error IS NOT NULL")
        await server.say(agent, "Now.")
        after = (await server.http.get("/v1/operations", params={"minutes": 10})).json()
        shorter = (await server.http.get("/v1/operations", params={"minutes": 3})).json()
        longer = (await server.http.get("/v1/operations", params={"minutes": 20})).json()
    assert [sum(each["turns"] for each in load["minutes"]) for load in (before, after)] == [4, 5]
    [kept] = [each for each in after["minutes"] if each["errors"]]
    assert kept in before["minutes"]
    assert (kept["turns"], kept["steps"], kept["errors"], kept["prompt_tokens"]) == (3, 3, 3, 21)
    assert (kept["p50"], kept["p95"]) == (200, pytest.approx(380))
    assert after["errors"] == longer["errors"] == {"model_timeout": 3}
    assert shorter["errors"] == {}
    assert [len(load["minutes"]) for load in (after, shorter, longer)] == [10, 3, 20]
    assert before["turn_seconds"]["p50"] == pytest.approx(100, rel=0.01)
    assert before["turn_seconds"]["p95"] == pytest.approx(400, rel=0.01)
    assert after["turn_seconds"]["max"] == 400
    assert before["step_seconds"]["model"] == pytest.approx(9 / 4, rel=0.1)


async def test_the_endpoint_is_shown_with_its_adapters_and_how_its_models_are_asked(
    database: OneDatabase,
) -> None:
    with endpoint() as model:
        async with serving_over_http(database, model.url) as server:
            await server.say(await server.create_agent(name="sam"), "Hello!")
            found = (await server.http.get("/v1/endpoint")).json()
    assert (found["state"], found["address"], found["in_flight"]) == ("ok", model.url, 0)
    assert found["served"][0]["kind"] == "model"
    assert [each["mode"] for each in found["known"]] == ["tools"]
    assert found["known"][0]["window"] > 0


async def test_an_endpoint_that_is_down_is_said_to_be(database: OneDatabase) -> None:
    nowhere = "http://127.0.0.1:9/v1"
    async with serving_over_http(database, nowhere, llm_retries=0) as server:
        found = (await server.http.get("/v1/endpoint")).json()
    assert (found["state"], found["served"]) == ("failing", [])
    assert found["detail"]


async def test_reports_are_read_as_they_were_written_and_nothing_outside_of_the_folder(
    database: OneDatabase, results: Path
) -> None:
    async with serving(database, ScriptedModel(), results_dir=results) as server:

        async def report(name: str) -> Any:
            return await server.http.get(f"/v1/reports/{name}")

        listed = (await server.http.get("/v1/reports")).json()
        evaluation = (await report("locomo/monday")).json()
        training = (await report("actor")).json()
        escapes = [await report(name) for name in ("link", "..%2Fsecret", "linked", "%2Fetc")]
    names = {each["name"]: (each["kind"], each["finished"]) for each in listed["items"]}
    assert names == {
        "locomo/monday": ("evaluation", True),
        "actor": ("training", False),
        "linked": ("evaluation", True),
        "colbench": ("evaluation", True),
    }
    assert evaluation["content"] == SCORES
    assert evaluation["settings"] == {"task": "locomo"}
    assert training["settings"] == {"rank": 16}
    assert training["curves"].keys() == {"loss"}
    loss = training["curves"]["loss"]
    assert (loss[0], loss[-1]) == ([1, 1], [1000, 0.001])
    assert len(loss) <= 301
    assert [each.status_code for each in escapes] == [404] * 4


async def test_without_a_results_folder_there_are_no_reports(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        listed = await server.http.get("/v1/reports")
        missing = await server.http.get("/v1/reports/x")
    for answer in (listed, missing):
        assert answer.status_code == 404
        assert "MEMSERVER_RESULTS_DIR" in answer.json()["error"]["hint"]
