"""`make install`: which steps it leaves out, and what it shows of the one that runs."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup_environment.py"


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_environment", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "REPOSITORY", tmp_path)
    monkeypatch.delenv("MEMSERVER_LLM_BASE_URL", raising=False)
    monkeypatch.delenv("MEMSERVER_SKIP_ENGINE", raising=False)
    return module


def test_the_engine_is_installed_where_nothing_names_another_model(
    setup: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("MEMSERVER_LLM_BASE_URL=\n# MEMSERVER_LLM_BASE_URL=http://x\n")
    assert not setup.engine_unwanted()


@pytest.mark.parametrize("name", ["MEMSERVER_LLM_BASE_URL=", "export memserver_llm_base_url = "])
def test_a_model_that_the_dotenv_file_names_leaves_the_engine_out(
    setup: ModuleType, tmp_path: Path, name: str
) -> None:
    (tmp_path / ".env").write_text(f"MEMSERVER_PORT=1\n{name}http://127.0.0.1:8000/v1\n")
    assert "http://127.0.0.1:8000/v1" in setup.engine_unwanted()


def test_a_model_that_the_environment_names_leaves_the_engine_out(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMSERVER_LLM_BASE_URL", "http://127.0.0.1:8000/v1")
    assert "http://127.0.0.1:8000/v1" in setup.install_engine()


def test_a_failed_step_shows_what_it_printed_and_what_to_do(
    setup: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing() -> None:
        outcome = setup.attempt(sys.executable, "-c", "print('no such wheel'); raise SystemExit(3)")
        assert outcome.returncode == 3
        assert setup.Progress.doing == "no such wheel"
        raise setup.StepError(outcome.stdout, "Look for it.")

    assert not setup.run_step("[1/4] torch", failing)
    printed = capsys.readouterr().out
    assert "no such wheel" in printed
    assert "What to do: Look for it." in printed
