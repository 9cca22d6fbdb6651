"""Calls that wait, and the answers to them."""

from typing import Any

import httpx2

from memserver.tools.tool import RunnableTool, ToolContext, make_tool
from tests.support.server import Server

CLIENT = {
    "kind": "client",
    "name": "open_file",
    "description": "Open a file on the caller's machine.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
}


def counting(ran: list[str]) -> RunnableTool:
    async def pay(context: ToolContext, euros: int) -> str:
        """Pay."""
        ran.append(f"{euros}")
        return f"paid {euros}"

    return make_tool(pay)


async def asked(server: Server, text: str = "Pay!", *, tool: str = "pay") -> tuple[str, str]:
    """An agent whose call waits, and the call."""
    agent = await server.create_agent()
    answer = await server.http.put(
        f"/v1/agents/{agent}/tools/{tool}", json={"approval": tool != "open_file"}
    )
    assert answer.status_code == 200, answer.text
    paused = await server.say(agent, text)
    assert paused["stop_reason"] == "requires_action"
    call = paused["messages"][-1]["tool_call"]
    assert (call["name"], call["state"], call["result"]) == (tool, "waiting", None)
    return agent, call["id"]


async def answer(server: Server, agent: str, call: str, what: str, **said: Any) -> httpx2.Response:
    return await server.http.post(f"/v1/agents/{agent}/calls/{call}/{what}", json=said)
