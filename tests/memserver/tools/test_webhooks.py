"""Webhooks: signed deliveries, their answers, and addresses that nobody may be made to call."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from memserver.testing.scripted import Call, ScriptedModel, say
from memserver.tools.outbound import webhooks
from memserver.tools.outbound.addresses import is_allowed
from memserver.tools.outbound.signing import sign, verify
from tests.support.http_app import Current
from tests.support.server import OneDatabase, Server, serving

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
WEBHOOK = {
    "kind": "webhook",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
HERE = "127.0.0.1/32"


class Hook:
    """A webhook that keeps what it gets and answers in turn what it should, the last one for ever."""

    def __init__(self, *answers: Callable[[], Response] | Response) -> None:
        self._answers = list(answers)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.app = Starlette(
            routes=[Route("/v1/{path:path}", self._serve, methods=["POST", "GET"])]
        )

    async def _serve(self, request: Request) -> Response:
        self.got.append((dict(request.headers), await request.body()))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return answer if isinstance(answer, Response) else answer()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_FIRST_PAUSE", 0.0)


async def agent_with(server: Server, url: str, **fields: Any) -> str:
    answer = await server.http.post("/v1/tools", json={**WEBHOOK, "url": url, **fields})
    assert answer.status_code == 201, answer.text
    agent = await server.create_agent()
    answer = await server.http.put(f"/v1/agents/{agent}/tools/weather", json={})
    assert answer.status_code == 200, answer.text
    return agent


async def called(
    database: OneDatabase, url: str, *, networks: str = HERE, **fields: Any
) -> tuple[str, str]:
    """The state and the result of a call; the agent answers after it, whatever it was."""
    model = ScriptedModel([Call("weather", {"inner_thought": "?", "city": "Oslo"}), say("Done.")])
    async with serving(database, model, tool_networks=networks) as server:
        agent = await agent_with(server, url, **fields)
        answer = await server.say(agent, "How is the weather?")
    assert answer["text"] == "Done."
    call = answer["messages"][0]["tool_call"]
    return call["state"], call["result"]


async def test_a_call_is_delivered_signed_and_its_answer_reaches_the_model(
    database: OneDatabase, current: Current, served: str
) -> None:
    hook = Hook(JSONResponse({"sky": "clear"}))
    current.app = hook.app
    model = ScriptedModel([Call("weather", {"inner_thought": "?", "city": "Oslo"}), say("Sun!")])
    async with serving(database, model, tool_networks=HERE) as server:
        agent = await agent_with(server, f"{served}/weather", secret=SECRET)
        answer = await server.say(agent, "How is the weather?")
    call = answer["messages"][0]["tool_call"]
    [(headers, body)] = hook.got
    assert model.last_prompt[-1].text == 'OK. {"sky":"clear"}'
    assert json.loads(body) == {
        "tool": "weather",
        "arguments": {"city": "Oslo"},
        "agent_id": agent,
        "turn": 1,
        "call_id": call["id"],
    }
    assert headers["webhook-id"] == f"{agent}:{call['id']}"
    assert verify(SECRET, headers, body)
    assert not verify(SECRET, headers, body + b" ")
    assert not verify("whsec_AAAA", headers, body)
    assert not verify(SECRET, {**headers, "webhook-id": "another"}, body)
    stale = int(headers["webhook-timestamp"]) + 301
    assert not verify(SECRET, headers, body, now=stale)


def test_signatures_are_those_of_the_standard() -> None:
    # The example of the Standard Webhooks specification.
    body = b'{"test": 2432232314}'
    headers = sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert not verify(SECRET, {"webhook-id": "x", "webhook-timestamp": "soon"}, body)


async def test_the_secret_is_made_up_and_shown_once(database: OneDatabase, served: str) -> None:
    new = {**WEBHOOK, "url": "https://example.org/hook"}
    async with serving(database, ScriptedModel()) as server:
        made = (await server.http.post("/v1/tools", json=new)).json()
        twice = await server.http.post("/v1/tools", json=new)
        got = (await server.http.get("/v1/tools/weather")).json()
        changed = await server.http.patch("/v1/tools/weather", json={"description": "Weather."})
        listed = (await server.http.get("/v1/tools")).json()
        page = (await server.http.get("/v1/tools", params={"limit": 3})).json()
        rest = (await server.http.get("/v1/tools", params={"after": page["next"]})).json()
        gone = await server.http.delete("/v1/tools/weather")
        missing = await server.http.get("/v1/tools/weather")
        ours = await server.http.delete("/v1/tools/send_message")
    assert made["secret"].startswith("whsec_")
    assert twice.status_code == 409
    assert (got["secret"], got["retries"], got["timeout"]) == (None, 2, 30)
    assert (changed.json()["description"], changed.json()["secret"]) == ("Weather.", None)
    assert [item["name"] for item in listed["items"]] == sorted(
        item["name"] for item in page["items"] + rest["items"]
    )
    assert "weather" in {item["name"] for item in listed["items"]}
    assert (gone.status_code, missing.status_code, ours.status_code) == (204, 404, 409)


async def test_a_failure_that_may_pass_is_tried_again_under_the_same_id(
    database: OneDatabase, current: Current, served: str
) -> None:
    hook = Hook(Response(status_code=503), Response(status_code=429), PlainTextResponse("sun"))
    current.app = hook.app
    assert await called(database, f"{served}/weather") == ("done", "sun")
    ids = {headers["webhook-id"] for headers, _ in hook.got}
    assert (len(hook.got), len(ids)) == (3, 1)


def junk() -> Response:
    return Response(b"\xff\xfe\x00", media_type="application/octet-stream")


def huge() -> Response:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b"x" * 100_000

    return StreamingResponse(body(), media_type="text/plain")


@pytest.mark.parametrize(
    ("answer", "retries", "state", "result"),
    [
        (lambda: PlainTextResponse("no such city", 404), 2, "failed", "answered 404: no such city"),
        (lambda: Response(status_code=500), 1, "failed", "answered 500. It was tried 2 times."),
        (lambda: Response("{", media_type="application/json"), 0, "failed", "with invalid JSON"),
        (lambda: JSONResponse("a text"), 0, "done", "a text"),
        (lambda: Response(media_type="application/json"), 0, "done", ""),
        (junk, 0, "failed", "with bytes that are no text"),
        (huge, 0, "failed", "has more than 1000000 bytes"),
        (
            lambda: Response(status_code=302, headers={"Location": "/v1/there"}),
            0,
            "failed",
            "answered 302, a redirect that does not keep the POST",
        ),
        (
            lambda: Response(status_code=307, headers={"Location": "/v1/there"}),
            0,
            "failed",
            "redirects more than 3 times",
        ),
    ],
)
async def test_whatever_a_webhook_answers_the_agent_continues(
    database: OneDatabase,
    current: Current,
    served: str,
    answer: Callable[[], Response],
    retries: int,
    state: str,
    result: str,
) -> None:
    hook = Hook(answer)
    current.app = hook.app
    ended = await called(database, f"{served}/weather", retries=retries)
    assert ended[0] == state
    assert result in ended[1]
    if "404" in result:
        assert len(hook.got) == 1


async def test_a_webhook_that_hangs_fails_within_its_time(
    database: OneDatabase, current: Current, served: str
) -> None:
    async def hang(request: Request) -> Response:
        await asyncio.sleep(60)
        return Response()

    current.app = Starlette(routes=[Route("/v1/weather", hang, methods=["POST"])])
    state, result = await called(database, f"{served}/weather", timeout=0.3)
    assert (state, result.partition(";")[0]) == ("failed", "It did not end within 0.3 seconds")


async def test_nobody_listening_is_reported(database: OneDatabase) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    state, result = await called(database, f"http://127.0.0.1:{port}/", retries=1)
    assert state == "failed"
    assert "can't be reached" in result
    assert "tried 2 times" in result


async def test_a_redirect_that_keeps_the_post_is_followed(
    database: OneDatabase, current: Current, served: str
) -> None:
    moved = Response(status_code=308, headers={"Location": "there"})
    hook = Hook(moved, PlainTextResponse("sun"))
    current.app = hook.app
    assert await called(database, f"{served}/weather", secret=SECRET) == ("done", "sun")
    assert verify(SECRET, *hook.got[1])


REFUSED = [
    "http://127.0.0.1/",
    "http://localhost:8283/v1/agents",
    "http://[::1]/",
    "http://10.1.2.3/",
    "http://169.254.169.254/latest/meta-data",
    "http://[::ffff:10.0.0.1]/",
    "http://user:password@example.org/",
    "ftp://example.org/",
    "http:///nowhere",
    "http://example.org:port/",
]


async def test_an_address_that_is_refused_can_not_be_registered(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        for url in REFUSED:
            answer = await server.http.post("/v1/tools", json={**WEBHOOK, "url": url})
            assert answer.status_code == 422, url
            assert "url" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("127.9.9.9", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::808:808", True),
        ("2002:7f00:1::", False),
    ],
)
def test_only_the_public_internet_is_allowed(address: str, allowed: bool) -> None:
    assert is_allowed(address, ()) is allowed


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What the DNS answers, one address after another."""
    known: dict[str, list[str]] = {}
    real = asyncio.BaseEventLoop.getaddrinfo

    async def getaddrinfo(self: Any, host: Any, port: Any, **options: Any) -> Any:
        if host in known:
            address = known[host].pop(0) if len(known[host]) > 1 else known[host][0]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]
        return await real(self, host, port, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return known


async def test_a_name_in_an_allowed_network_is_called(
    database: OneDatabase, current: Current, served: str, names: dict[str, list[str]]
) -> None:
    hook = Hook(PlainTextResponse("secret"))
    current.app = hook.app
    names["inside.example"] = ["127.0.0.1"]
    url = served.replace("127.0.0.1", "inside.example")
    allowed = await called(database, url + "/")
    assert allowed == ("done", "secret")


async def test_neither_a_redirect_nor_a_second_answer_of_the_dns_leads_inside(
    database: OneDatabase, current: Current, served: str, names: dict[str, list[str]]
) -> None:
    port = served.removesuffix("/v1").rpartition(":")[2]
    there = f"http://inside.example:{port}/v1/there"
    hook = Hook(Response(status_code=307, headers={"Location": there}), PlainTextResponse("secret"))
    current.app = hook.app
    names["inside.example"] = ["127.0.0.2"]
    ended = await called(database, f"{served}/weather")
    assert ended == ("failed", "The webhook's address is not allowed.")
    assert len(hook.got) == 1


async def test_a_name_inside_is_refused_when_it_is_called(
    database: OneDatabase, current: Current, served: str, names: dict[str, list[str]]
) -> None:
    hook = Hook(PlainTextResponse("secret"))
    current.app = hook.app
    names["inside.example"] = ["127.0.0.1"]
    url = served.replace("127.0.0.1", "inside.example")
    ended = await called(database, f"{url}/weather", networks="", retries=3)
    assert ended == ("failed", "The webhook's address is not allowed.")
    assert hook.got == []


async def test_a_literal_address_in_a_redirect_is_refused(
    database: OneDatabase, current: Current, served: str
) -> None:
    inside = Response(status_code=307, headers={"Location": "http://169.254.169.254/latest"})
    current.app = Hook(inside).app
    state, result = await called(database, f"{served}/weather")
    assert state == "failed"
    assert "address is not allowed" in result


BAD: list[tuple[dict[str, Any], str]] = [
    ({"parameters": {"type": "array"}}, "must be one of type object"),
    ({"parameters": {"type": "object", "properties": {"a": {"type": "no"}}}}, "no JSON schema"),
    ({"parameters": {"type": "object", "properties": {"inner_thought": {}}}}, "inner_thought"),
    ({"parameters": {"type": "object", "properties": []}}, "properties"),
    ({"parameters": {"type": "object", "description": "x" * 70_000}}, "more than 64000"),
    ({"parameters": {"type": "object", "default": float("inf")}}, "what JSON can't"),
    (
        {"parameters": {"type": "object", "properties": {"a": {"$ref": "http://example.org/a"}}}},
        "refers to nothing",
    ),
    ({"parameters": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}}, "refers to"),
    ({"parameters": {"type": "object", "$ref": "#"}}, "can't be used"),
    (
        {"parameters": {"type": "object", "properties": {"a": {"type": "string", "pattern": "["}}}},
        "patterns are those of RE2",
    ),
    ({"name": "two words"}, "pattern"),
    ({"timeout": 0}, "greater than 0"),
    ({"retries": 11}, "less than or equal to 10"),
    ({"kind": "mcp"}, "kind"),
    ({"secret": "short"}, "at least 16"),
    ({"description": ""}, "at least 1"),
]


@pytest.mark.parametrize(
    "host", ["..", ".", "a..b", f"{'a' * 64}.example", "a b", "a%20b", "<>", "a|b", "\u00b2" * 64]
)
async def test_a_host_that_is_no_name_can_not_be_registered(
    database: OneDatabase, host: str
) -> None:
    url = f"http://{host}/hook"
    new = {
        "tools": {**WEBHOOK, "url": url},
        "mcp-servers": {"name": "odd", "url": url},
        "webhooks": {"url": url, "events": ["turn.ended"]},
    }
    async with serving(database, ScriptedModel()) as server:
        answers = [await server.http.post(f"/v1/{what}", json=body) for what, body in new.items()]
    assert [answer.status_code for answer in answers] == [422, 422, 422]
    assert all("is no name of a host" in answer.json()["error"]["message"] for answer in answers)


async def test_a_bad_tool_is_refused_when_it_is_registered(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        for change, reason in BAD:
            new = {**WEBHOOK, "url": "https://example.org/hook", **change}
            answer = await server.http.post(
                "/v1/tools",
                content=json.dumps(new),  # httpx refuses to send what isn't JSON
                headers={"Content-Type": "application/json"},
            )
            assert answer.status_code == 422, answer.text
            assert reason in answer.json()["error"]["message"]


async def test_a_schema_that_refers_to_itself_is_taken(database: OneDatabase) -> None:
    tree = {
        "type": "object",
        "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/t"}}},
    }
    parameters = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/t"}},
        "required": ["tree"],
        "$defs": {"t": tree},
    }
    new = {"kind": "client", "name": "plant", "description": "Plant.", "parameters": parameters}
    arguments = {"tree": {"below": [{"below": []}]}}
    async with serving(database, ScriptedModel([Call("plant", arguments)])) as server:
        made = await server.http.post("/v1/tools", json=new)
        assert made.status_code == 201, made.text
        agent = await server.create_agent()
        await server.http.put(f"/v1/agents/{agent}/tools/plant", json={})
        paused = await server.say(agent, "Go!")
    assert paused["messages"][-1]["tool_call"]["arguments"] == arguments


async def test_a_name_of_the_servers_own_is_taken(database: OneDatabase) -> None:
    new = {**WEBHOOK, "name": "send_message", "url": "https://example.org/hook"}
    async with serving(database, ScriptedModel()) as server:
        answer = await server.http.post("/v1/tools", json=new)
    assert answer.status_code == 409


async def test_a_change_counts_from_the_next_call_on_and_a_deleted_tool_is_detached(
    database: OneDatabase, current: Current, served: str
) -> None:
    hook = Hook(PlainTextResponse("sun"))
    current.app = hook.app
    call = Call("weather", {"city": "Oslo"})
    model = ScriptedModel([call, say("Sun."), say("I can't know.")])
    async with serving(database, model, tool_networks=HERE) as server:
        agent = await agent_with(server, "https://example.org/hook")
        await server.http.patch("/v1/tools/weather", json={"url": f"{served}/weather"})
        assert (await server.say(agent, "Weather?"))["text"] == "Sun."
        wrong = await server.http.patch("/v1/tools/weather", json={"url": None})
        await server.http.delete("/v1/tools/weather")
        tools = await server.get(f"{agent}/tools")
        await server.say(agent, "Weather?")
    assert len(hook.got) == 1
    assert wrong.status_code == 422
    assert "weather" not in {item["name"] for item in tools["items"]}
    assert "weather" not in {spec.name for spec in model.seen[-1].tools}
