"""A person approves or denies the calls of an agent, in the terminal.

In this folder, in one terminal, a server that has the tool: `memserver serve --tools weather_tools`. In another:

    python approve.py "What is the weather in Oslo?"
    python approve.py

The first says that to the agent `careful`, whose calls of `weather` wait for a person, and then asks about
them. The second only asks about all calls that wait, of whatever agent and since whenever.
"""

import argparse
import json

from memserver.client import Client
from memserver.client.address import DEFAULT_URL
from memserver.client.models import WaitingCall


def main() -> None:
    """Say something, if wanted, and go through all calls that wait."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="?", help="what to say to the agent `careful`")
    parser.add_argument("--url", default=DEFAULT_URL)
    arguments = parser.parse_args()
    with Client(arguments.url) as client:
        if arguments.text is not None:
            agent = client.agents.find("careful") or client.agents.create("careful")
            client.tools.attach(agent.id, "weather", approval=True)
            answer = client.messages.send(agent.id, arguments.text)
            print(answer.text or answer.stop_reason)
        for call in client.calls.all():
            if call.waits_for == "approval":
                decide(client, call)


def decide(client: Client, call: WaitingCall) -> None:
    """Ask a person, tell the server, and print what follows in the turn."""
    print(f"{call.name}({json.dumps(call.arguments)})")
    if input("Approve? [y/N] ").strip().lower() == "y":
        answer = client.calls.approve(call.agent_id, call.call_id)
    else:
        answer = client.calls.deny(call.agent_id, call.call_id, input("Why not? "))
    print(answer.text or answer.stop_reason)


if __name__ == "__main__":
    main()
