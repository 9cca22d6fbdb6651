"""Where the local engine's parts lie under MEMSERVER_HOME, and what its models are called."""

from dataclasses import dataclass
from pathlib import Path

MODEL_NAME = "memserver-small"
"""The model that is served unless another one is named: the base with our adapter merged in."""
BASE_NAME = "SmolLM2-135M-Instruct"
"""The untrained model that it was made of; adapters are for this one."""
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
"""What PEFT calls an adapter's two files."""


@dataclass(frozen=True, slots=True)
class EnginePaths:
    home: Path

    @property
    def root(self) -> Path:
        return self.home / "engine"

    @property
    def venv(self) -> Path:
        return self.root / "venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def model(self) -> Path:
        return self.of(MODEL_NAME)

    def of(self, name: str) -> Path:
        return self.home / "models" / name

    @property
    def log(self) -> Path:
        """What the running engine writes; the run before it is kept as engine.log.1."""
        return self.root / "engine.log"

    @property
    def address(self) -> Path:
        """Where a running server publishes the engine's URL."""
        return self.root / "address"

    @property
    def cache(self) -> Path:
        return self.root / "cache"
