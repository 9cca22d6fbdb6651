"""Approve or deny calls that wait, in the terminal: `python approve.py http://127.0.0.1:8283/v1`."""

import json
import sys
import urllib.request
from typing import Any


def ask(base: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
    """One request of the API."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{base}{path}", data=data, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def main(base: str) -> None:
    """Go through all calls that wait."""
    after = ""
    while True:
        page = ask(base, f"/calls/waiting{after}")
        for call in page["items"]:
            if call["waits_for"] == "approval":
                decide(base, call)
        if page["next"] is None:
            return
        after = f"?after={page['next']}"


def decide(base: str, call: dict[str, Any]) -> None:
    """Ask a person, and tell the server."""
    print(f"{call['name']}({json.dumps(call['arguments'])})")
    approve = input("Approve? [y/N] ").strip().lower() == "y"
    reason = "" if approve else input("Why not? ")
    path = f"/agents/{call['agent_id']}/calls/{call['call_id']}/approval"
    answer = ask(base, path, {"approve": approve, "reason": reason})
    print(answer["text"] or answer["stop_reason"])


if __name__ == "__main__":
    main(sys.argv[1])
