"""The compose file and the image: checked by Docker Compose and hadolint, as far as that goes without an engine. Its SQL and its scripts are run for real."""

import json
import os
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import psycopg
import pytest
import yaml

from memserver.api.middleware.access import METRICS
from memserver.local.postgres.binaries import usable_binaries
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.settings import Settings
from memserver.storage.checks import APP_ROLE
from memserver.storage.migrate import OWNER_ROLE, migrate, newest_revision
from tests.deploy.programs import program, run
from tests.support.nginx import configured, needs_nginx
from tests.support.servers import memserver_command

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
REPLICAS = ("memserver-1", "memserver-2")
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
VARIABLE = re.compile(r"\$\{([A-Z_]+)([^}]*)\}")
SECRETS = "/run/secrets/"

pytestmark = pytest.mark.timeout(500)  # the first test downloads the programs


def example_variables() -> dict[str, str]:
    lines = (REPOSITORY / ".env.example").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def image_tag(image: str) -> str:
    return image.rpartition("/")[2].partition(":")[2]


@cache
def resolved(*profiles: str) -> dict[str, Any]:
    """The services as Docker Compose sees them, with the example's variables and these profiles."""
    return resolved_in(REPOSITORY, *profiles)


def resolved_in(folder: Path, *profiles: str) -> dict[str, Any]:
    options = [each for profile in profiles for each in ("--profile", profile)]
    files = ("--file", str(folder / "docker-compose.yml"))
    settings = ("--env-file", str(folder / ".env.example"))
    compose = program("docker-compose")
    done = run(
        *(compose, *files, *settings, *options, "config", "--format", "json"),
        COMPOSE_PROFILES=profiles[0] if profiles else "none",
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


def test_it_is_what_the_compose_specification_allows():
    schema = json.loads((REPOSITORY / "tests/data/compose-spec.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(COMPOSE)


def test_profiles_say_what_runs_beside_memserver():
    always = {"proxy", *REPLICAS, "migrate", "postgres"}
    assert set(resolved()) == always
    assert set(resolved("gpu")) == always | {"vllm"}
    assert set(resolved("cpu")) == always | {"vllm-cpu"}
    assert set(resolved("monitoring")) == always | {"prometheus", "grafana"}


def test_every_image_has_a_tag_that_stays():
    images = [service["image"] for service in resolved("*").values()]
    images += re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    for image in images:
        assert re.search(r"\d+\.\d+\.\d+", image_tag(image)), image


def test_every_variable_is_in_the_example_with_the_same_default():
    example = example_variables()
    for name, modifier in VARIABLE.findall(TEXT):
        assert name in example, name
        if modifier.startswith(":-"):
            assert example[name] == modifier.removeprefix(":-"), name
    assert set(example) == {name for name, _ in VARIABLE.findall(TEXT)} | {"COMPOSE_PROFILES"}


def test_secrets_are_files_and_none_is_in_an_environment():
    for name, service in resolved("*").items():
        mounted = {f"{SECRETS}{each['source']}" for each in service.get("secrets", ())}
        for variable, value in service.get("environment", {}).items():
            if variable.endswith("_FILE"):
                assert value in mounted, (name, variable)
            assert "PASSWORD" not in variable or variable.endswith("_FILE"), (name, variable)
            assert not re.search(r"://[^/]*:[^/]*@", value or ""), (name, variable)


def test_every_setting_of_memserver_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    known = {f"MEMSERVER_{name.upper()}" for name in Settings.model_fields}
    used = {**resolved()["migrate"]["environment"], **resolved()["memserver-1"]["environment"]}
    named = {name.removesuffix("_FILE") for name in used}
    named |= set(re.findall(r"\b(MEMSERVER_[A-Z_]+)=", DOCKERFILE))
    assert named <= known
    for name, value in used.items():
        if name.endswith("_FILE"):
            (tmp_path / name).write_text(f"the {value}", encoding="utf-8")
        monkeypatch.setenv(name, str(tmp_path / name) if name.endswith("_FILE") else value)
    settings = Settings(_env_file=None)
    assert settings.database_app_url is not None
    assert settings.database_app_url.get_secret_value() == f"the {SECRETS}database_app_url"
    secret = {
        name for name, field in Settings.model_fields.items() if "Secret" in str(field.annotation)
    }
    assert {f"MEMSERVER_{name.upper()}_FILE" for name in secret} <= used.keys()


def test_any_other_setting_comes_from_a_file_that_need_not_be_there(tmp_path: Path):
    for name in ("docker-compose.yml", ".env.example"):
        (tmp_path / name).write_text((REPOSITORY / name).read_text("utf-8"), encoding="utf-8")
    (tmp_path / "memserver.env").write_text("MEMSERVER_RATE_LIMIT=60\nMEMSERVER_WORKERS=9\n")
    services = resolved_in(tmp_path)
    for service in (*REPLICAS, "migrate"):
        environment = services[service]["environment"]
        assert environment["MEMSERVER_RATE_LIMIT"] == "60"
        assert environment["MEMSERVER_WORKERS"] == "1"  # .env says so


def test_secrets_that_are_empty_set_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in resolved()["memserver-1"]["environment"].items():
        if name.endswith("_FILE"):
            (tmp_path / name).touch()
            monkeypatch.setenv(name, str(tmp_path / name) if name.endswith("_FILE") else value)
    settings = Settings(_env_file=None)
    assert (settings.database_read_url, settings.embedding_api_key) == (None, None)


def test_one_migration_ends_well_before_a_server_starts():
    services = resolved()
    for replica in REPLICAS:
        waits_for = services[replica]["depends_on"]
        assert waits_for["migrate"]["condition"] == "service_completed_successfully"
    assert services["migrate"]["command"] == ["memserver", "migrate"]
    assert services["migrate"]["restart"] == "no"
    assert services["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"


def test_every_service_that_stays_restarts_and_says_whether_it_is_well():
    for name, service in resolved("*").items():
        if name == "migrate":
            continue
        assert service["restart"] == "unless-stopped", name
        by_image = service["image"].startswith("memserver:") and "HEALTHCHECK" in DOCKERFILE
        assert by_image or service["healthcheck"]["test"][0] == "CMD", name


def test_only_the_proxy_is_published_and_on_the_loopback_the_dashboards():
    published = {
        name: [port.get("host_ip", "everywhere") for port in service["ports"]]
        for name, service in resolved("*").items()
        if "ports" in service
    }
    assert published == {"proxy": ["everywhere"], "grafana": ["127.0.0.1"]}


def test_the_proxy_knows_both_servers_by_addresses_that_stay_and_they_trust_it_alone():
    services = resolved()
    proxy = services["proxy"]["networks"]["inside"]["ipv4_address"]
    for number, replica in enumerate(REPLICAS, 1):
        address = services[replica]["networks"]["inside"]["ipv4_address"]
        assert services["proxy"]["environment"][f"MEMSERVER_{number}"] == f"{address}:8283"
        assert services[replica]["environment"]["MEMSERVER_TRUSTED_PROXIES"] == proxy


def test_the_servers_and_the_proxy_write_to_nothing_but_their_volumes():
    services = resolved()
    for name in ("proxy", *REPLICAS, "migrate"):
        assert services[name]["read_only"], name
        assert services[name]["cap_drop"] == ["ALL"], name
    homes = [services[name]["volumes"] for name in REPLICAS]
    assert [[(each["source"], each["target"]) for each in home] for home in homes] == [
        [("memserver-1", "/var/lib/memserver")],
        [("memserver-2", "/var/lib/memserver")],
    ]


def test_state_lies_in_named_volumes():
    used = {
        volume["source"]
        for service in resolved("*").values()
        for volume in service.get("volumes", ())
        if volume["type"] == "volume"
    }
    assert used == set(COMPOSE["volumes"])


def test_what_is_mounted_from_the_checkout_is_there():
    for service in resolved("*").values():
        for volume in service.get("volumes", ()):
            assert (
                volume["type"] == "volume"
                or Path(volume["source"]).is_file()
                or (Path(volume["source"]).is_dir())
            )


def test_vllm_has_a_gpu_or_none_and_calls_tools():
    services = resolved("*")
    [device] = services["vllm"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]
    assert "deploy" not in services["vllm-cpu"]
    for name in ("vllm", "vllm-cpu"):
        assert {"--enable-auto-tool-choice", "--tool-call-parser=hermes"} <= set(
            services[name]["command"]
        )
        assert services[name]["networks"]["inside"]["aliases"] == ["model"]
    assert example_variables()["MEMSERVER_LLM_BASE_URL"] == "http://model:8000/v1"


def test_prometheus_reads_both_servers_with_the_operators_key_and_grafana_reads_prometheus():
    scraping = yaml.safe_load((REPOSITORY / "deploy/prometheus/prometheus.yml").read_text("utf-8"))
    [job] = scraping["scrape_configs"]
    services = resolved("monitoring")
    keys = [f"{SECRETS}{each['source']}" for each in services["prometheus"]["secrets"]]
    assert keys == [job["authorization"]["credentials_file"]]
    assert job["static_configs"] == [{"targets": [f"{name}:8283" for name in REPLICAS]}]
    assert job.get("metrics_path", "/metrics") == METRICS
    provisioning = REPOSITORY / "deploy/grafana/provisioning"
    [source] = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text("utf-8"))[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    [provider] = yaml.safe_load((provisioning / "dashboards/memserver.yml").read_text("utf-8"))[
        "providers"
    ]
    mounted = {each["target"] for each in services["grafana"]["volumes"]}
    assert f"{provider['options']['path']}/memserver.json" in mounted


def test_the_secrets_are_made_once_and_fit_together(tmp_path: Path):
    folder = tmp_path / "secrets"

    def make() -> dict[str, str]:
        generate = f"{memserver_command()} keys generate"
        paths = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        script = str(REPOSITORY / "docker/make-secrets.sh")
        done = run(script, str(folder), **paths, GENERATE_KEY=generate, SERVER_NAME="mem.example")
        assert (done.returncode, done.stderr) == (0, "")
        return {each.name: each.read_text("utf-8").strip() for each in folder.iterdir()}

    made = make()
    assert set(made) == set(COMPOSE["secrets"])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o644}
    for role, name in (("owner", "database_url"), ("app", "database_app_url")):
        password = made[f"{role}_password"]
        assert made[name] == f"postgresql://memserver_{role}:{password}@postgres:5432/memserver"
    assert re.fullmatch(r"msk_\w{49}", made["admin_key"])
    shown = run(
        "openssl", "x509", "-in", str(folder / "tls.crt"), "-noout", "-ext", "subjectAltName"
    )
    assert "DNS:mem.example" in shown.stdout
    assert make() == made


@needs_nginx
def test_nginx_takes_the_configuration_with_the_variables_of_the_proxy(tmp_path: Path):
    made = run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-nodes", "-subj", "/CN=x", "-keyout", str(tmp_path / "tls.key")),
        *("-out", str(tmp_path / "tls.crt")),
    )
    assert made.returncode == 0
    variables = resolved()["proxy"]["environment"]
    configured(tmp_path, {**variables, "MEMSERVER_TLS": str(tmp_path)})


def test_hadolint_finds_nothing_in_the_dockerfile():
    done = run(program("hadolint"), "--no-color", "--format=json", "-", stdin=DOCKERFILE)
    assert json.loads(done.stdout) == []


def test_the_image_does_not_run_as_root():
    *_, last = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)
    assert re.findall(r"^USER (\S+)", last, re.MULTILINE) == ["10001:10001"]


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


def run_init_file(server: EmbeddedPostgres, folder: Path, **passwords: str) -> None:
    """As the image's entrypoint does: psql, as superuser, in the database that it has just made."""
    files = {f"{name}_FILE": str(folder / name) for name in passwords}
    for name, password in passwords.items():
        (folder / name).write_text(f"{password}\n", encoding="utf-8")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE memserver")
    psql = usable_binaries(Path("/tmp"), None).program("psql")
    init = REPOSITORY / "docker" / "postgres-init.sql"
    subprocess.run(
        [psql, "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--file={init}", server.url("memserver")],
        env={**os.environ, **files},
        check=True,
        capture_output=True,
    )


def test_the_roles_that_the_init_file_makes_are_enough_for_memserver(
    fresh_server: EmbeddedPostgres, tmp_path: Path
):
    run_init_file(fresh_server, tmp_path, OWNER_PASSWORD="it's the owner", APP_PASSWORD="the app")
    assert migrate(fresh_server.url("memserver", OWNER_ROLE)) == newest_revision()
    with psycopg.connect(fresh_server.url("memserver", APP_ROLE)) as connection:
        assert connection.execute("SELECT count(*) FROM agents").fetchone() == (0,)
    with psycopg.connect(fresh_server.url("memserver")) as connection:
        roles = connection.execute(
            """SELECT rolname, rolsuper, rolbypassrls, rolpassword LIKE 'SCRAM-SHA-256$%'
               FROM pg_authid WHERE rolname LIKE 'memserver%' ORDER BY rolname"""
        ).fetchall()
    assert roles == [(APP_ROLE, False, False, True), (OWNER_ROLE, False, False, True)]
