"""What commands have in common: the settings they start from, the logging of those that serve."""

import os

from memserver.settings import Settings

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"level": "WARNING", "handlers": ["stderr"]},
    "loggers": {"memserver": {"level": "INFO"}},
}
"""For this process and its workers alike."""


def read_settings(**overrides: object) -> Settings:
    """The settings, the command line's before the environment's; children read the same ones."""
    for name, value in overrides.items():
        if value is not None:
            os.environ[f"MEMSERVER_{name.upper()}"] = str(value)
    return Settings()
