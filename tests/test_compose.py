"""The compose file is checked as far as that goes without a Docker engine; its SQL is run for real."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import psycopg
import pytest
import yaml

from memserver.local.postgres.binaries import usable_binaries
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.settings import Settings
from memserver.storage.checks import APP_ROLE
from memserver.storage.migrate import OWNER_ROLE, migrate, newest_revision

REPOSITORY = Path(__file__).parents[1]
TEXT = (REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
VARIABLE = re.compile(r"\$\{([A-Z_]+)([^}]*)\}")


def example_variables() -> dict[str, str]:
    lines = (REPOSITORY / ".env.example").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def image_tag(image: str) -> str:
    return image.rpartition("/")[2].partition(":")[2]


def test_it_is_what_the_compose_specification_allows():
    schema = json.loads((REPOSITORY / "tests/data/compose-spec.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(COMPOSE)


def test_every_image_has_a_tag_that_stays():
    images = [service["image"] for service in SERVICES.values()]
    images += re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    for image in images:
        assert re.search(r"\d", image_tag(image)), image
        assert "latest" not in image_tag(image), image


def test_every_variable_is_in_the_example_with_the_same_default():
    example = example_variables()
    for name, modifier in VARIABLE.findall(TEXT):
        assert name in example, name
        if modifier.startswith(":-"):
            assert example[name] == modifier.removeprefix(":-"), name
    assert set(example) == {name for name, _ in VARIABLE.findall(TEXT)}


def test_passwords_come_from_outside_and_have_no_default():
    example = example_variables()
    for name, modifier in VARIABLE.findall(TEXT):
        if "PASSWORD" in name:
            assert modifier.startswith(":?"), name
            assert example[name] == ""
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if "PASSWORD" in name:
                assert VARIABLE.fullmatch(str(value)), name
            for password in re.findall(r"://[^:/@]+:(.+?)@", str(value)):
                assert VARIABLE.fullmatch(password), name


def test_every_setting_of_memserver_exists():
    known = {f"MEMSERVER_{name.upper()}" for name in Settings.model_fields}
    named = set(SERVICES["memserver"]["environment"])
    named |= {name for name in example_variables() if name.startswith("MEMSERVER_")}
    named |= set(re.findall(r"\b(MEMSERVER_[A-Z_]+)=", DOCKERFILE))
    assert named <= known
    values = {
        name.removeprefix("MEMSERVER_").lower(): VARIABLE.sub(
            lambda found: found[2].removeprefix(":-") if found[2].startswith(":-") else "secret",
            str(value),
        )
        for name, value in SERVICES["memserver"]["environment"].items()
    }
    Settings.model_validate(values)


def test_every_service_restarts_and_says_whether_it_is_well():
    for name, service in SERVICES.items():
        assert service["restart"] == "unless-stopped", name
        assert service["healthcheck"]["test"][0] == "CMD", name
    for wanted, how in SERVICES["memserver"]["depends_on"].items():
        assert wanted in SERVICES
        assert how["condition"] in {"service_healthy", "service_started"}


def test_only_memserver_is_published_and_only_on_the_loopback():
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert list(published) == ["memserver"]
    assert all(port.startswith("127.0.0.1:") for port in published["memserver"])


def test_state_lies_in_named_volumes():
    used = {
        volume.partition(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", ())
        if not volume.startswith(".")
    }
    assert used == set(COMPOSE["volumes"])


def test_vllm_has_a_gpu_and_calls_tools():
    [device] = SERVICES["vllm"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]
    assert "--enable-auto-tool-choice" in SERVICES["vllm"]["command"]
    assert "--tool-call-parser=hermes" in SERVICES["vllm"]["command"]


def test_the_image_does_not_run_as_root():
    *_, last = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)
    assert re.findall(r"^USER (\S+)", last, re.MULTILINE) == ["memserver"]


def test_the_image_is_built_from_the_declared_torch_and_from_files_that_it_is_given():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    [torch] = [
        wanted
        for wanted in project["project"]["optional-dependencies"]["local"]
        if wanted.startswith("torch")
    ]
    assert f"{torch}+cpu" in DOCKERFILE
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
        for name in line.split()
    }
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((REPOSITORY / name).exists() for name in copied)
    packaged = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*packaged["packages"], *packaged["force-include"]} <= copied


@pytest.fixture
def fresh_server() -> Iterator[EmbeddedPostgres]:
    # Roles belong to a whole server, so the shared one won't do.
    home = Path(tempfile.mkdtemp(prefix="memserver-test-", dir="/tmp"))
    home.chmod(0o711)
    with EmbeddedPostgres(home / "postgres", settings={"fsync": "off"}) as server:
        yield server
    shutil.rmtree(home)


def run_init_file(server: EmbeddedPostgres, **passwords: str) -> None:
    """As the image's entrypoint does: psql, as superuser, in the database that it has just made."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE memserver")
    psql = usable_binaries(Path("/tmp"), None).program("psql")
    init = REPOSITORY / "docker" / "postgres-init.sql"
    subprocess.run(
        [psql, "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--file={init}", server.url("memserver")],
        env={**os.environ, **passwords},
        check=True,
        capture_output=True,
    )


def test_the_roles_that_the_init_file_makes_are_enough_for_memserver(
    fresh_server: EmbeddedPostgres,
):
    run_init_file(fresh_server, OWNER_PASSWORD="it's the owner", APP_PASSWORD="the app")
    assert migrate(fresh_server.url("memserver", OWNER_ROLE)) == newest_revision()
    with psycopg.connect(fresh_server.url("memserver", APP_ROLE)) as connection:
        assert connection.execute("SELECT count(*) FROM agents").fetchone() == (0,)
    with psycopg.connect(fresh_server.url("memserver")) as connection:
        roles = connection.execute(
            """SELECT rolname, rolsuper, rolbypassrls, rolpassword LIKE 'SCRAM-SHA-256$%'
               FROM pg_authid WHERE rolname LIKE 'memserver%' ORDER BY rolname"""
        ).fetchall()
    assert roles == [(APP_ROLE, False, False, True), (OWNER_ROLE, False, False, True)]
