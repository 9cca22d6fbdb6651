"""Where the local engine's parts lie under MEMSERVER_HOME, and what its models are called."""

from pathlib import Path

MODEL_NAME = "memserver-small"
"""The model that is served unless another one is named: the base with our adapter merged in."""
BASE_NAME = "SmolLM2-135M-Instruct"
"""The untrained model that it was made of; adapters are for this one."""
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
"""What PEFT calls an adapter's two files."""


class EnginePaths:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "engine"
        self.venv = self.root / "venv"
        self.python = self.venv / "bin" / "python"
        self.model = self.of(MODEL_NAME)
        self.log = self.root / "engine.log"  # the run before it is kept as engine.log.1
        self.address = self.root / "address"  # where a running server publishes the engine's URL
        self.cache = self.root / "cache"  # of vLLM and its libraries, kept out of the user's own

    def of(self, name: str) -> Path:
        """The directory of one of the two models, as Hugging Face lays it out."""
        return self.home / "models" / name
