"""An agent from a file: memserver's own, or Letta's agent file (.af).

    python import_agent.py letta_librarian.af
    memserver export librarian librarian.zip
    python import_agent.py librarian.zip --name librarian-2

It needs a running `memserver serve`, and prints what the new agent has and what could not be carried.
"""

import argparse
from pathlib import Path

from memserver.client import Client
from memserver.client.address import DEFAULT_URL


def main() -> None:
    """Import the file and show the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--name", help="of the new agent, instead of the file's")
    parser.add_argument("--url", default=DEFAULT_URL)
    arguments = parser.parse_args()

    with Client(arguments.url) as client:
        made = client.agents.import_file(arguments.file.read_bytes(), name=arguments.name)
        print(f"{made.agent.name}: {made.messages} messages, {made.passages} passages")
        for section in client.working_context.get(made.agent.id).sections:
            print(f"  {section.name}: {section.text}")
        print("not carried:" if made.not_carried else "everything was carried")
        for what in made.not_carried:
            print(f"  {what.kind} {what.name}: {what.reason}")


if __name__ == "__main__":
    main()
