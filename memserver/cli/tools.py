"""The commands `tools`: the tools of a running server."""

from typing import Annotated

import typer

from memserver.cli.console import console, print_json, print_table
from memserver.cli.options import ApiKeyOption, JsonOption, UrlOption
from memserver.cli.running_server import connect, find_agent
from memserver.errors import InvalidInput
from memserver.llm.coercion import read_json

tools = typer.Typer(no_args_is_help=True, help="List tools, and try one.")


@tools.command("list")
def tools_list(
    as_json: JsonOption = False, url: UrlOption = None, api_key: ApiKeyOption = None
) -> None:
    """List the tools that agents can have, by name."""
    with connect(url, api_key) as client:
        found = list(client.tools.all())
    if as_json:
        print_json([tool.model_dump(mode="json") for tool in found])
        return
    rows = [(tool.name, tool.kind, tool.description.partition("\n")[0]) for tool in found]
    print_table(("tool", "kind", "is"), rows, sentences=("is",))


@tools.command("try")
def tools_try(
    name: Annotated[str, typer.Argument(help="Of the tool.")],
    args: Annotated[str, typer.Option(help="Its arguments: a JSON object.")] = "{}",
    agent: Annotated[
        str | None, typer.Option(help="Whose memory a Python function has; name or id.")
    ] = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Call a tool once, as an agent would, and print what the model would read.

    It runs for real; nothing is stored. The exit status is 1 if the call failed.
    """
    try:
        arguments = read_json(args)
    except ValueError as error:
        raise InvalidInput(
            f"--args is no JSON: {error}.", hint='--args \'{"city": "Oslo"}\''
        ) from error
    if not isinstance(arguments, dict):
        raise InvalidInput("--args is no JSON object.", hint='--args \'{"city": "Oslo"}\'')
    with connect(url, api_key) as client:
        whose = find_agent(client, agent).id if agent is not None else None
        trial = client.tools.try_out(name, arguments, agent=whose)
    if as_json:
        print_json(trial.model_dump(mode="json"))
    else:
        pictures = f", {trial.pictures} pictures" if trial.pictures else ""
        console.print(f"{trial.state} in {trial.seconds:.2f} s{pictures}:")
        console.print(trial.result)
    if trial.state != "done":
        raise typer.Exit(1)
