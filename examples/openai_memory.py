"""OpenAI's SDK with a memory that outlives the process.

Each run is a new process that sends one message and no history:

    python examples/openai_memory.py "Hi! My name is Ada."
    python examples/openai_memory.py "What is my name?"

It needs the package openai, which `make install` brings, and a running `memserver serve`.
"""

import argparse

from openai import OpenAI

from memserver.client import Client
from memserver.client.address import DEFAULT_URL


def main() -> None:
    """Say it to the agent `memo`, which is made at the first run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text")
    parser.add_argument("--url", default=DEFAULT_URL)
    arguments = parser.parse_args()

    with Client(arguments.url) as memserver:
        if memserver.agents.find("memo") is None:
            memserver.agents.create("memo")

    client = OpenAI(base_url=f"{arguments.url}/v1", api_key="none")
    stream = client.responses.create(model="memo", input=arguments.text, stream=True)
    for event in stream:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
