"""The log: one line each on stderr, as text or JSON, with the ids of what it belongs to."""

import logging
from typing import Any, Literal

from opentelemetry import trace
from typing_extensions import override

from memserver.telemetry import ids

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
Form = Literal["text", "json"]
ACCESS = "memserver.access"
"""The logger of requests."""


def logging_config(
    level: Level = "INFO", form: Form = "text", *, access: bool = False
) -> dict[str, Any]:
    """For `logging.config.dictConfig`, in the main process and its workers alike; `access`: requests are logged, too."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"ids": {"()": f"{__name__}.AddIds"}},
        "formatters": {
            "text": {
                "()": f"{__name__}.TextFormatter",
                "format": "%(asctime)s %(levelname)s %(name)s: %(message)s",
            },
            "json": {
                "()": "pythonjsonlogger.json.JsonFormatter",
                "fmt": ["levelname", "name", "message", "process"],
                "rename_fields": {"levelname": "level", "name": "logger", "exc_info": "exception"},
                "timestamp": True,
                "reserved_attrs": [
                    *vars(logging.makeLogRecord({})),
                    "asctime",
                    "message",
                    "ids",
                    "taskName",
                ],
            },
        },
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": form, "filters": ["ids"]}
        },
        "root": {"level": "ERROR" if level == "ERROR" else "WARNING", "handlers": ["stderr"]},
        "loggers": {
            "memserver": {"level": level},
            ACCESS: {"level": "INFO" if access else "CRITICAL"},
            "psycopg.pool": {"level": "ERROR"},  # it repeats what we log ourselves, at each try
        },
    }


class AddIds(logging.Filter):
    """Adds the ids of what runs, and those of its trace, where there is one."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        found = dict(ids.current())
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            found |= {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
        record.ids = found
        record.__dict__.update(found)
        return True


class TextFormatter(logging.Formatter):
    """A line for people: the ids stand after the message, before a traceback."""

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        found = " ".join(f"{name}={value}" for name, value in getattr(record, "ids", {}).items())
        return f"{line} [{found}]" if found else line
