"""Where the local engine's parts lie under MEMSERVER_HOME, and what its model is called."""

from dataclasses import dataclass
from pathlib import Path

MODEL_NAME = "SmolLM2-135M-Instruct"


@dataclass(frozen=True, slots=True)
class EnginePaths:
    """The engine's corner of MEMSERVER_HOME."""

    home: Path

    @property
    def root(self) -> Path:
        """Everything but the model."""
        return self.home / "engine"

    @property
    def venv(self) -> Path:
        """The environment that vLLM has to itself."""
        return self.root / "venv"

    @property
    def python(self) -> Path:
        """The interpreter of that environment."""
        return self.venv / "bin" / "python"

    @property
    def model(self) -> Path:
        """The converted model, a directory as Hugging Face lays it out."""
        return self.home / "models" / MODEL_NAME

    @property
    def log(self) -> Path:
        """What the running engine writes; the run before it is kept as engine.log.1."""
        return self.root / "engine.log"

    @property
    def cache(self) -> Path:
        """Caches of vLLM and its libraries, kept out of the user's own."""
        return self.root / "cache"
