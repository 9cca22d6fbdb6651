"""A client's tools and forms, whatever way the agent's endpoint takes of asking for a call."""

import json
from typing import Any

import pytest

from memserver.messages import Prompt, ToolSpecs
from memserver.testing.scripted import Call, ScriptedModel, Step
from memserver.testing.scripted_server import create_scripted_app
from tests.support.http_app import serving as serving_app
from tests.support.server import OneDatabase, serving

FORM: Any = {
    "type": "json_schema",
    "json_schema": {
        "name": "weather",
        "schema": {
            "$defs": {"City": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "type": "object",
            "properties": {"city": {"$ref": "#/$defs/City"}, "sunny": {"type": "boolean"}},
            "required": ["city", "sunny"],
        },
    },
}
ANSWER = {"city": {"name": "Oslo"}, "sunny": True}
LOOK: Any = {"type": "function", "function": {"name": "look-up", "parameters": {}}}


def act(prompt: Prompt, tools: ToolSpecs) -> Step:
    if not any(tool.name == "look-up" for tool in tools):
        return Call("send_message", {"message": ANSWER})
    has_looked = any("It rains" in message.text for message in prompt)
    return Call("send_message", {"message": "It rains."}) if has_looked else Call("look-up")


@pytest.mark.parametrize("mode", ["tools", "json_schema", "text"])
async def test_tools_and_forms_work_in_each_mode(database: OneDatabase, mode: str):
    with serving_app(create_scripted_app(act)) as url:
        settings: Any = {"llm_base_url": f"{url}/v1", "llm_mode": mode}
        async with serving(database, ScriptedModel(), **settings) as server:
            await server.create_agent(name="sam")
            body: Any = {"model": "sam", "messages": [{"role": "user", "content": "Weather?"}]}
            path = "/v1/chat/completions"
            first = (await server.http.post(path, json={**body, "tools": [LOOK]})).json()
            message = first["choices"][0]["message"]
            [call] = message["tool_calls"]
            assert call["function"] == {"name": "look-up", "arguments": "{}"}
            result = {"role": "tool", "tool_call_id": call["id"], "content": "It rains"}
            body["messages"] += [message, result]
            second = (await server.http.post(path, json={**body, "tools": [LOOK]})).json()
            assert second["choices"][0]["message"]["content"] == "It rains."
            body["messages"] = [{"role": "user", "content": "As JSON?"}]
            third = (await server.http.post(path, json={**body, "response_format": FORM})).json()
            assert json.loads(third["choices"][0]["message"]["content"]) == ANSWER
