"""What commands have in common: their settings, the server that they speak to, the logging of those that serve."""

from typing import Annotated, Any

import typer

from memserver.settings import Settings
from memserver.telemetry.logs import logging_config


def url_option(help_: str) -> Any:  # noqa: ANN401 - as typer has it
    """The option `--url` of every command that speaks to a server; the environment's counts for all of them."""
    return typer.Option("--url", envvar="MEMSERVER_URL", help=help_)


UrlOption = Annotated[
    str | None, url_option("Of the server; left out: on this machine, at its port.")
]
ApiKeyOption = Annotated[
    str | None, typer.Option("--api-key", envvar="MEMSERVER_API_KEY", help="By which it is asked.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="For scripts.")]

_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def read_settings(**overrides: Any) -> Settings:  # noqa: ANN401 - of each setting
    """The settings, the command line's before the environment's."""
    given = {name: value for name, value in overrides.items() if value is not None}
    return Settings(**given)


def logging_of(settings: Settings) -> dict[str, Any]:
    return logging_config(settings.log_level, settings.log_format, access=settings.log_requests)


def server_url(given: str | None) -> str:
    """Where the server is: as it was given, or where `memserver serve` listens by the settings."""
    if given:
        return given
    settings = read_settings()
    host = _EVERY_ADDRESS.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
