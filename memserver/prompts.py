"""Loads the texts in prompts/ and fills them in. A user's own folder goes before ours, file by file."""

from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from memserver.errors import SetupError


def shipped_prompts() -> Path:
    """Where our texts lie: inside the package in a wheel, beside it in a checkout."""
    packaged = Path(str(files("memserver"))) / "_prompts"
    return packaged if packaged.is_dir() else Path(__file__).parents[1] / "prompts"


class Prompts:
    """The texts a model reads: system.md, pressure_alert.md, summary.md and their like."""

    def __init__(self, folder: Path | None = None) -> None:
        folders = [folder] if folder else []
        self._environment = Environment(  # not for a browser: nothing to escape
            loader=FileSystemLoader([*folders, shipped_prompts()]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def render(self, name: str, **values: object) -> str:
        """Fill in one text. Raises SetupError: the file is missing, or asks for a value that there is not."""
        try:
            return self._environment.get_template(name).render(**values).strip()
        except TemplateError as error:
            raise SetupError(
                f"The prompt {name} can't be rendered: {error}",
                hint="Check the folder in MEMSERVER_PROMPTS_DIR against prompts/ of this version.",
            ) from error
