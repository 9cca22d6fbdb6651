"""Webhooks hear of a tenant's events, signed, until they take them."""

import base64
import hashlib
import hmac
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.http_app import Current
from tests.support.server import OneDatabase, Server, serving

HERE = "127.0.0.1/32"
ALL = ["turn.ended", "approval.waiting", "document.ready", "document.failed"]
QUEUED = "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'deliver_event'"
APPEND = Call("working_context_append", {"section": "human", "content": "x"})


class Receiver:
    """Keeps what it gets, by the path; answers the statuses in turn, then 204."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.got: list[tuple[str, dict[str, str], bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        self.got.append((request.url.path, dict(request.headers), await request.body()))
        status = self.statuses.pop(0) if self.statuses else 204
        await Response(status_code=status)(scope, receive, send)

    def events(self, path: str) -> list[dict[str, Any]]:
        return [json.loads(body) for each, _, body in self.got if each == path]


def signature(secret: str, headers: dict[str, str], body: bytes) -> str:
    """By the words of the specification, not by our code."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()}"


async def register(
    server: Server, url: str, events: list[str], headers: dict[str, str] | None = None
) -> dict[str, Any]:
    body = {"url": url, "events": events}
    answer = await server.http.post("/v1/webhooks", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_a_webhook_hears_of_its_tenants_turns_approvals_and_documents(
    database: OneDatabase, current: Current, served: str
) -> None:
    current.app = receiver = Receiver()
    model = ScriptedModel([APPEND, say("hi")])
    async with serving(database, model, tool_networks=HERE) as server:
        await server.operate()
        theirs = await server.create_tenant("acme")
        mine = await register(server, f"{served}/mine", ALL)
        await register(server, f"{served}/theirs", ALL, theirs)
        agent = await server.create_agent()
        await server.http.put(
            f"/v1/agents/{agent}/tools/working_context_append", json={"approval": True}
        )
        call = (await server.say(agent, "hello"))["messages"][-1]["tool_call"]
        await server.http.post(
            f"/v1/agents/{agent}/calls/{call['id']}/approval", json={"approve": True}
        )
        documents = [
            await server.http.post(
                f"/v1/agents/{agent}/documents",
                params={"name": name},
                content=content,
                headers={"Content-Type": kind},
            )
            for name, kind, content in [
                ("a.txt", "text/plain", b"text"),
                ("a.pdf", "application/pdf", b"%PDF-1.4 broken"),
            ]
        ]
        await server.run_jobs()
        listed = (await server.http.get(f"/v1/webhooks/{mine['id']}")).json()
    good, bad = (each.json() for each in documents)
    found = {each["type"]: each["data"] for each in receiver.events("/v1/mine")}
    assert len(receiver.got) == 4
    assert found["turn.ended"] == {
        "agent_id": agent,
        "turn": 1,
        "state": "done",
        "stop_reason": "message_sent",
    }
    assert found["approval.waiting"]["call_id"] == call["id"]
    assert found["approval.waiting"]["name"] == "working_context_append"
    assert found["document.ready"]["id"] == good["id"]
    assert found["document.failed"]["id"] == bad["id"]
    for _, headers, body in receiver.got:
        assert headers["webhook-signature"] == signature(mine["secret"], headers, body)
    assert (listed["secret"], listed["error"]) == (None, None)
    assert listed["delivered_at"] is not None


async def test_an_event_that_is_not_taken_comes_again_under_the_same_id_and_the_webhook_says_why(
    database: OneDatabase, current: Current, served: str
) -> None:
    current.app = receiver = Receiver(500, 404)
    async with serving(
        database, ScriptedModel([say("hi"), say("hi")]), tool_networks=HERE
    ) as server:
        made = await register(server, f"{served}/mine", ["turn.ended"])
        await server.say(await server.create_agent(), "hello")
        await server.run_jobs()
        taken = (await server.http.get("/v1/webhooks")).json()["items"]
        receiver.statuses[:] = [404] * 8
        await server.say(await server.create_agent(), "hello")
        await server.run_jobs()
        refused = (await server.http.get(f"/v1/webhooks/{made['id']}")).json()
        failed = server.rows("SELECT count(*) FROM procrastinate_jobs WHERE status = 'failed'")
    ids = [headers["webhook-id"] for _, headers, _ in receiver.got]
    assert [ids.count(each) for each in dict.fromkeys(ids)] == [3, 8]
    assert (taken[0]["error"], refused["error"]) == (None, "The webhook answered 404.")
    assert refused["delivered_at"] == taken[0]["delivered_at"]
    assert failed == [(1,)]


async def test_a_webhook_that_is_gone_is_disabled_and_hears_of_nothing_more(
    database: OneDatabase, current: Current, served: str
) -> None:
    current.app = receiver = Receiver(204, 410)
    model = ScriptedModel([say("hi")] * 4)
    async with serving(database, model, tool_networks=HERE) as server:
        made = await register(server, f"{served}/mine", ["turn.ended"])
        other = await register(server, f"{served}/other", ["turn.ended"])
        agent = await server.create_agent()
        await server.say(agent, "hello")
        await server.run_jobs()
        [gone_path] = [path for path, _, _ in receiver.got[1:2]]
        await server.say(agent, "hello")
        queued = server.rows(QUEUED)
        await server.run_jobs()
        listed = (await server.http.get("/v1/webhooks")).json()["items"]
    gone_id, kept_id = (made["id"], other["id"])
    if gone_path.endswith("other"):
        gone_id, kept_id = kept_id, gone_id
    by_id = {each["id"]: each for each in listed}
    assert made["disabled_at"] is None
    assert by_id[gone_id]["disabled_at"] is not None
    assert by_id[gone_id]["error"] == "The webhook answered 410."
    assert by_id[kept_id]["disabled_at"] is None
    assert queued == [(1,)]
    assert [path == gone_path for path, _, _ in receiver.got] == [False, True, False]


async def test_what_was_queued_for_a_webhook_before_it_was_gone_is_dropped(
    database: OneDatabase, current: Current, served: str
) -> None:
    current.app = receiver = Receiver(410)
    async with serving(
        database, ScriptedModel([say("hi"), say("hi")]), tool_networks=HERE
    ) as server:
        await register(server, f"{served}/mine", ["turn.ended"])
        agent = await server.create_agent()
        await server.say(agent, "one")
        await server.say(agent, "two")
        await server.run_jobs()
        left = server.rows(QUEUED)
    assert (len(receiver.got), left) == (1, [(0,)])


async def test_nothing_is_queued_where_no_webhook_is_registered_any_more_and_no_private_address_taken(
    database: OneDatabase, current: Current, served: str
) -> None:
    current.app = receiver = Receiver()
    async with serving(database, ScriptedModel([say("hi"), say("hi")])) as server:
        private = await server.http.post(
            "/v1/webhooks", json={"url": f"{served}/x", "events": ["turn.ended"]}
        )
        made = await register(server, "https://events.invalid/x", ["turn.ended"])
        await server.say(await server.create_agent(), "hello")
        query = "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'deliver_event'"
        before = server.rows(query)
        await server.http.delete(f"/v1/webhooks/{made['id']}")
        await server.run_jobs()
        await server.say(await server.create_agent(), "hello")
        after = server.rows(query)
    assert (private.status_code, private.json()["error"]["code"]) == (422, "invalid_input")
    assert (before, after, receiver.got) == ([(1,)], [(0,)], [])
