"""Settings whose values stand in files."""

from pathlib import Path

import pytest

from memserver.errors import SetupError
from memserver.settings import Settings


def settings() -> Settings:
    return Settings(_env_file=None)


def test_every_setting_can_be_read_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {
        "LLM_API_KEY": "secret\n",
        "TRUSTED_PROXIES": "10.0.0.1, 10.1.0.0/16",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        monkeypatch.setenv(f"MEMSERVER_{name}_FILE", str(tmp_path / name))
    found = settings()
    assert found.llm_api_key is not None
    assert found.llm_api_key.get_secret_value() == "secret"
    assert [str(each) for each in found.trusted_proxies] == ["10.0.0.1/32", "10.1.0.0/16"]


def test_an_empty_file_leaves_the_setting_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("\n", encoding="utf-8")
    monkeypatch.setenv("MEMSERVER_LLM_API_KEY_FILE", str(tmp_path / "key"))
    assert settings().llm_api_key is None


def test_dot_env_can_name_the_file_too(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://db.example/memserver", encoding="utf-8")
    env = tmp_path / ".env"
    env.write_text(f"MEMSERVER_DATABASE_URL_FILE={tmp_path / 'url'}\n", encoding="utf-8")
    found = Settings(_env_file=env).database_url
    assert found is not None
    assert found.get_secret_value() == "postgresql://db.example/memserver"


def test_a_file_that_cannot_be_read_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSERVER_ADMIN_KEY_FILE", "/run/secrets/nothing")
    with pytest.raises(SetupError) as raised:
        settings()
    assert str(raised.value) == (
        "MEMSERVER_ADMIN_KEY_FILE names /run/secrets/nothing, which can't be read: "
        "No such file or directory."
    )


def test_a_value_and_its_file_are_not_both_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMSERVER_LLM_API_KEY", "one")
    monkeypatch.setenv("MEMSERVER_LLM_API_KEY_FILE", str(tmp_path))
    with pytest.raises(SetupError, match="are both set"):
        settings()
