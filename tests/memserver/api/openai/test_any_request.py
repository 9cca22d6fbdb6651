"""Whatever is sent, the answer is a completion or an error in OpenAI's shape, never a fault."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memserver.testing.scripted import ScriptedModel
from memserver.testing.scripted_rules import echo
from tests.support.nightly import times
from tests.support.server import OneDatabase, Server, serving

TEXT = st.text(alphabet=st.characters(codec=None), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXT, each, max_size=3),
    max_leaves=6,
)
PART = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "input_text", "output_text", "image_url"]) | JSON},
    optional={"text": JSON},
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool"]) | JSON},
    optional={"content": TEXT | st.lists(PART, max_size=3) | JSON, "type": JSON},
)
SHARED: dict[str, Any] = {
    "stream": st.booleans() | JSON,
    "tools": JSON,
    "tool_choice": JSON,
    "model": st.just("sam") | JSON,
}
CHAT = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE, max_size=4) | JSON},
    optional={**SHARED, "stream_options": JSON, "n": JSON, "response_format": JSON},
)
RESPONSE = st.fixed_dictionaries(
    {"input": TEXT | st.lists(MESSAGE, max_size=4) | JSON},
    optional={**SHARED, "text": JSON, "previous_response_id": JSON, "instructions": JSON},
)


async def check(server: Server, path: str, body: Any) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await server.http.post(path, content=json.dumps(body), headers=headers)
    assert answer.status_code in {200, 400, 404}, answer.text
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_no_body_of_a_request_is_a_fault_of_the_server(database: OneDatabase):
    async with serving(database, ScriptedModel(echo)) as server:
        await server.create_agent(name="sam")
        asked: list[tuple[str, Any]] = []

        @settings(
            max_examples=times(80, 5000), database=None, suppress_health_check=list(HealthCheck)
        )
        @given(CHAT, RESPONSE)
        def collect(chat: Any, response: Any) -> None:
            asked.append(("/v1/chat/completions", {"model": "sam", **chat}))
            asked.append(("/v1/responses", {"model": "sam", **response}))

        collect()
        for path, body in asked:
            await check(server, path, body)


async def test_no_name_of_a_model_or_response_is_a_fault(database: OneDatabase):
    async with serving(database, ScriptedModel(echo)) as server:
        for name in ("%00", "a/b", "%ED%A0%80", "resp_" + "0" * 32 + "_1", "x" * 5000, "{0}"):
            for resource in ("models", "responses"):
                answer = await server.http.get(f"/v1/{resource}/{name}")
                assert answer.status_code == 404, answer.text
                assert "type" in answer.json()["error"]
