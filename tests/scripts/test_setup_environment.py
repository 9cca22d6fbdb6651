"""`make install`: which steps it leaves out, and what it shows of the one that runs."""

import importlib.util
import subprocess
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


CONFIGURED = """:env:.find-links='/wheels'
:env:.disable-pip-version-check='1'
global.cert='/certificates.crt'
global.extra-index-url='https://one/simple https://two/simple'
global.find-links='/other wheels'
"""


@pytest.fixture
def ran(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that an installation runs; pip is configured as `setup.listed` says, `setup.fails` fail."""
    commands: list[list[str]] = []
    setup.listed, setup.fails = CONFIGURED, ()

    def attempt(*words: object, environment: object = None) -> subprocess.CompletedProcess[str]:
        command = [str(word).removeprefix(str(setup.VENV / "bin") + "/") for word in words]
        commands.append(command)
        failed = any(name in command[:3] for name in setup.fails)
        return subprocess.CompletedProcess(
            command, int(failed), f"{command[0]} fails" if failed else setup.listed
        )

    monkeypatch.setattr(setup, "attempt", attempt)
    return commands


def test_uv_installs_from_where_pip_is_configured_to(
    setup: ModuleType, ran: list[list[str]]
) -> None:
    setup.install("Look.", "numpy")
    uv = ran[-1]
    assert uv[:3] == ["uv", "pip", "install"]
    assert uv[3:6] == [
        "--extra-index-url=https://one/simple",
        "--extra-index-url=https://two/simple",
        "--find-links=/wheels",
    ]
    assert uv[-1] == "numpy"
    assert setup.uv_install()[1] == {"SSL_CERT_FILE": "/certificates.crt"}


def test_pip_installs_where_its_configuration_is_more_than_uv_knows(
    setup: ModuleType, ran: list[list[str]]
) -> None:
    setup.listed = f"{CONFIGURED}global.proxy='http://proxy'\n"
    setup.install("Look.", "numpy")
    assert [command[1:3] for command in ran] == [["-m", "pip"]] * 2
    assert ran[-1][-1] == "numpy"


def test_what_uv_fails_to_install_pip_tries_and_its_words_are_shown(
    setup: ModuleType, ran: list[list[str]]
) -> None:
    setup.fails = ("uv",)
    setup.install("Look.", "numpy")
    assert (ran[-2][0], ran[-1][0]) == ("uv", "python")
    setup.fails = ("uv", "pip")
    with pytest.raises(setup.StepError, match="python fails"):
        setup.install("Look.", "numpy")
