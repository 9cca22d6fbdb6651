"""A Python function, a webhook and an MCP server, used in one turn.

A server that has the function (weather_tools.py) and starts the MCP server (mcp_notes.py), in this folder:

    export MEMSERVER_MCP_SERVERS='{"notes": {"command": "python", "args": ["mcp_notes.py"]}}'
    export MEMSERVER_TOOL_NETWORKS=127.0.0.0/8
    memserver serve --tools weather_tools

And in another terminal:

    python three_tools.py

It registers the webhook and receives it too, by webhook_receiver.py. The setting allows webhooks on this
machine, which are refused otherwise. Use a model that is good at calling tools.
"""

import argparse
import json
import threading
import time
from contextlib import suppress
from http.server import ThreadingHTTPServer

from webhook_receiver import Receiver

from memserver.client import Client
from memserver.client.address import DEFAULT_URL
from memserver.errors import NotFound

QUESTION = "What is the weather in Oslo? Order a fern, and tell me what my note on ferns says."
WHAT = {"type": "string", "description": "What to order."}
PATIENCE_SECONDS = 30


def main() -> None:
    """Give the agent `gardener` its tools, ask, and show what it did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default=DEFAULT_URL)
    url = parser.parse_args().url
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as shop, Client(url) as client:
        threading.Thread(target=shop.serve_forever, daemon=True).start()
        register_order(client, f"http://127.0.0.1:{shop.server_address[1]}/")
        agent = client.agents.find("gardener") or client.agents.create("gardener")
        for tool in ("weather", "order", "notes__read_note"):
            attach(client, str(agent.id), tool)
        answer = client.messages.send(agent.id, QUESTION)
        for message in answer.messages:
            call = message.tool_call
            if call is not None and call.name != "send_message":
                reported = {key: call.arguments[key] for key in call.arguments if key in SHOWN}
                print(f"{call.name}({json.dumps(reported)}) -> {call.result}")
        print(answer.text)
        shop.shutdown()


SHOWN = ("city", "unit", "what", "title")
"""Arguments of these three tools; each call has an inner thought besides."""


def register_order(client: Client, url: str) -> None:
    """The webhook `order`, a new one in each run, with the secret that signs its calls."""
    with suppress(NotFound):
        client.tools.delete("order")
    parameters = {"type": "object", "properties": {"what": WHAT}, "required": ["what"]}
    made = client.tools.create_webhook("order", "Order something.", url, parameters=parameters)
    Receiver.secret = made.secret or ""


def attach(client: Client, agent: str, tool: str) -> None:
    """Let the agent call a tool; that of an MCP server is there once the server has listed it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            client.tools.attach(agent, tool)
            return
        except NotFound:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    main()
