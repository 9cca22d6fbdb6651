"""The commands `agents`: the agents of a running server."""

import sys
from typing import Annotated

import typer
from rich.text import Text

from memserver.cli.chat.screen import (
    context_table,
    fullness,
    model_of,
    print_agents,
    sections_text,
    when,
)
from memserver.cli.console import console, print_json
from memserver.cli.options import ApiKeyOption, JsonOption, UrlOption
from memserver.cli.running_server import connect, find_agent
from memserver.client.models import Agent
from memserver.errors import InvalidInput

agents = typer.Typer(no_args_is_help=True, help="List, show, fork and delete a server's agents.")
AgentArgument = Annotated[str, typer.Argument(help="Name or id.")]


@agents.command("list")
def agents_list(
    as_json: JsonOption = False, url: UrlOption = None, api_key: ApiKeyOption = None
) -> None:
    """List the agents, oldest first."""
    with connect(url, api_key) as client:
        found = list(client.agents.all())
    if as_json:
        print_json([agent.model_dump(mode="json") for agent in found])
        return
    print_agents(found)


@agents.command("show")
def agents_show(
    agent: AgentArgument,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Show an agent: its counts, its working context, and what its prompt holds."""
    with connect(url, api_key) as client:
        found = find_agent(client, agent)
        memory = client.working_context.get(found.id)
        view = client.agents.context(found.id)
        collections = client.archival.collections(found.id).items
        tools = [each.name for each in client.tools.all_of_agent(found.id)]
    if as_json:
        print_json(
            {
                "agent": found.model_dump(mode="json"),
                "sections": [each.model_dump(mode="json") for each in memory.sections],
                "context": view.model_dump(mode="json"),
                "collections": [each.model_dump(mode="json") for each in collections],
                "tools": tools,
            }
        )
        return
    passages = ", ".join(f"{each.passage_count} in {each.name}" for each in collections)
    facts = {
        "id": str(found.id),
        "model": model_of(found),
        "created": when(found.created_at),
        "messages": str(found.message_count),
        "passages": passages,
        "language": found.language,
        "tools": ", ".join(tools),
    }
    console.print(Text(found.name, style="bold green"))
    for name, value in facts.items():
        console.print(f"{name:<10}{value}")
    console.print()
    console.print(sections_text(memory.sections))
    console.print()
    console.print(fullness(view))
    console.print(context_table(view))


@agents.command("fork")
def agents_fork(
    agent: AgentArgument,
    name: Annotated[str | None, typer.Option(help="Of the new one; left out: made up.")] = None,
    position: Annotated[
        int | None, typer.Option(help="Of the last message that it has; left out: of all.")
    ] = None,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Make another agent with an agent's memory, whose history ends at a message."""
    with connect(url, api_key) as client:
        copy = client.agents.fork(find_agent(client, agent).id, name, position=position)
    console.print(f"Made {copy.name} ({copy.id}), with {copy.message_count} messages.")


@agents.command("delete")
def agents_delete(
    agent: AgentArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Delete an agent with its whole memory, for good."""
    with connect(url, api_key) as client:
        found = find_agent(client, agent)
        if not yes:
            _confirm(found)
        client.agents.delete(found.id)
    console.print(f"Deleted {found.name} ({found.id}).")


def _confirm(agent: Agent) -> None:
    if not sys.stdin.isatty():
        raise InvalidInput("There is no terminal to ask at.", hint="--yes deletes without asking.")
    counted = f"{agent.message_count} messages and all that it remembers"
    typer.confirm(f"Delete {agent.name} with {counted}?", abort=True)
