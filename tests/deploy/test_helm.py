"""The Helm chart: linted and rendered by Helm, its manifests checked against Kubernetes' schemas and what memserver needs. No cluster."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import psycopg
import pytest
import yaml

import memserver
from memserver.api.app import create_app
from memserver.cli.serve import GRACE_SECONDS
from memserver.local.postgres.embedded import EmbeddedPostgres
from memserver.settings import Settings
from memserver.storage.checks import APP_ROLE
from memserver.storage.migrate import OWNER_ROLE, migrate, newest_revision
from memserver.testing.scripted import ScriptedModel
from tests.deploy.custom_resources import SPECS
from tests.deploy.programs import program, run
from tests.support.server import OneDatabase, serving

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "deploy/helm/memserver"
KEY = "adminKey.existingSecret=operator"
OTLP_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
OWN = (
    *("postgres.enabled=false", "database.existingSecret=database"),
    *("vllm.enabled=false", "llm.baseUrl=https://models.example/v1", "llm.existingSecret=model"),
    *("readReplicas=true", "settings.MEMSERVER_EMBEDDING_MODEL=bge"),
    "secretSettings.MEMSERVER_EMBEDDING_API_KEY.name=models",
    "secretSettings.MEMSERVER_EMBEDDING_API_KEY.key=embedding.key",
)
EVERYTHING = (
    *("postgres.pooler.enabled=true", "autoscaling.enabled=true", "ingress.enabled=true"),
    *("metrics.serviceMonitor.enabled=true", "ingress.trustedProxies={10.0.0.0/8}"),
    *("readReplicas=true", "extraVolumes[0].name=prompts", "extraVolumeMounts[0].name=prompts"),
    *("extraVolumes[0].configMap.name=prompts", "extraVolumeMounts[0].mountPath=/prompts"),
    *("settings.MEMSERVER_PROMPTS_DIR=/prompts", f"secretSettings.{OTLP_HEADERS}.key=headers"),
    f"secretSettings.{OTLP_HEADERS}.name=collector",
)
VARIANTS = {"plain": (), "own": OWN, "everything": EVERYTHING}
MOUNTED = "/run/secrets/memserver/"

pytestmark = pytest.mark.timeout(500)  # the first test downloads the programs
Manifest = dict[str, Any]


def helm(*arguments: str, values: tuple[str, ...] = ()) -> tuple[int, str, str]:
    """What Helm prints, with values for the chart."""
    given = [each for value in (KEY, *values) for each in ("--set", value)]
    done = run(program("helm"), *arguments, str(CHART), *given)
    return done.returncode, done.stdout, done.stderr


@cache
def rendered(variant: str) -> list[Manifest]:
    status, printed, error = helm(
        *("template", "mem", "--namespace", "agents"), values=VARIANTS[variant]
    )
    assert status == 0, error
    return [each for each in yaml.safe_load_all(printed) if each]


def of_kind(variant: str, kind: str) -> dict[str, Manifest]:
    """The manifests of a kind by the end of their names."""
    found = [each for each in rendered(variant) if each["kind"] == kind]
    names = [each["metadata"]["name"].removeprefix("mem-memserver").lstrip("-") for each in found]
    return dict(zip(names, found, strict=True))


def pods(variant: str) -> Iterator[tuple[str, Manifest]]:
    for each in rendered(variant):
        if "template" in each.get("spec", {}):
            yield each["metadata"]["name"], each["spec"]["template"]


def container(variant: str, kind: str, name: str) -> Manifest:
    [found] = of_kind(variant, kind)[name]["spec"]["template"]["spec"]["containers"]
    result: Manifest = found
    return result


@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_lints_it(variant: str):
    status, printed, error = helm("lint", "--strict", values=VARIANTS[variant])
    assert (status, "0 chart(s) failed" in printed) == (0, True), printed + error


@pytest.mark.parametrize("kubernetes", ["1.30.0", "1.37.0"])
def test_every_manifest_is_what_kubernetes_takes(tmp_path: Path, kubernetes: str):
    """The oldest one that the chart allows, and the newest one that the program knows."""
    files = []
    for variant in VARIANTS:
        files.append(tmp_path / f"{variant}.yaml")
        files[-1].write_text(yaml.safe_dump_all(rendered(variant)), encoding="utf-8")
    command = [program("python"), "-m", "kubernetes_validate", "--strict", "-k", kubernetes]
    done = run(*command, *map(str, files))
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert printed.count(" passed for resource ") > 20
    unknown = set(re.findall(r"schema for kind (\w+) with api version (\S+) ", printed))
    assert {f"{version} {kind}" for kind, version in unknown} == set(SPECS)
    assert "ERROR" not in printed


def test_resources_of_operators_have_the_fields_that_those_know():
    seen = set()
    for variant in VARIANTS:
        for each in rendered(variant):
            named = f"{each['apiVersion']} {each['kind']}"
            if named in SPECS:
                seen.add(named)
                jsonschema.Draft202012Validator(SPECS[named]).validate(each["spec"])
    assert seen == set(SPECS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_pod_keeps_to_the_restricted_policy_on_a_read_only_file_system(variant: str):
    dockerfile = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    [user] = re.findall(r"^USER (\d+):\1$", dockerfile, re.MULTILINE)
    assert dict(pods(variant))
    for name, pod in pods(variant):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, name  # they look like settings
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] == int(user), name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for each in spec["containers"]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert each["resources"]["limits"]["memory"], name


def test_a_server_has_time_to_end_and_is_asked_at_routes_that_there_are():
    openapi = create_app(settings=Settings(_env_file=None)).openapi()
    server = container("plain", "Deployment", "")
    paths = [server[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness")]
    assert paths == ["/v1/health", "/v1/health"]
    assert server["readinessProbe"]["httpGet"]["path"] == "/v1/ready"
    assert {"/v1/health", "/v1/ready"} <= set(openapi["paths"])
    pause = server["lifecycle"]["preStop"]["sleep"]["seconds"]
    [spec] = [pod["spec"] for name, pod in pods("plain") if name == "mem-memserver"]
    assert spec["terminationGracePeriodSeconds"] >= pause + 3 * GRACE_SECONDS


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("kind", "name"), [("Deployment", ""), ("Job", "migrate")])
def test_settings_exist_and_secrets_are_files_that_are_mounted(
    variant: str, kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pod = of_kind(variant, kind)[name]["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    files = {
        item["path"]
        for source in volumes["secrets"]["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    variables = pod["containers"][0]["env"]
    named = {each["name"]: each["value"] for each in variables if each["name"] != OTLP_HEADERS}
    assert {
        value.removeprefix(MOUNTED) for name, value in named.items() if "_FILE" in name
    } == files
    for variable, value in named.items():
        if variable.endswith("_FILE"):
            (tmp_path / variable).write_text("secret", encoding="utf-8")
        path = tmp_path / variable
        monkeypatch.setenv(variable, str(path) if variable.endswith("_FILE") else value)
        setting = variable.removeprefix("MEMSERVER_").removesuffix("_FILE").lower()
        assert setting in Settings.model_fields
    settings = Settings(_env_file=None)
    assert settings.admin_key is not None
    assert settings.admin_key.get_secret_value() == "secret"
    assert (settings.database_read_url is not None) == (variant != "plain")
    assert (settings.embedding_api_key is not None) == (variant == "own")
    assert (settings.prompts_dir is not None) == (variant == "everything")
    mounted = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert mounted.keys() == volumes.keys()
    if variant == "everything":
        assert mounted["prompts"] == str(settings.prompts_dir)
        [headers] = [each["valueFrom"] for each in variables if each["name"] == OTLP_HEADERS]
        assert headers == {"secretKeyRef": {"name": "collector", "key": "headers"}}


def test_a_job_migrates_before_an_upgrade_and_before_an_install_where_the_database_is_there():
    hooks = {
        variant: of_kind(variant, "Job")["migrate"]["metadata"]["annotations"]["helm.sh/hook"]
        for variant in ("plain", "own")
    }
    assert hooks == {"plain": "pre-upgrade", "own": "pre-install,pre-upgrade"}
    assert container("own", "Job", "migrate")["command"] == ["memserver", "migrate"]


def test_selectors_of_services_policies_and_budgets_find_their_pods():
    labels = [pod["metadata"]["labels"] for _, pod in pods("everything")]

    def found(selector: dict[str, str]) -> int:
        return sum(selector.items() <= each.items() for each in labels)

    ports = {port["name"] for _, pod in pods("everything") for port in _ports(pod)}
    for each in of_kind("everything", "Service").values():
        assert found(each["spec"]["selector"]) == 1
        assert {port["targetPort"] for port in each["spec"]["ports"]} <= ports
    for name, each in of_kind("everything", "NetworkPolicy").items():
        assert name == "postgres" or found(each["spec"]["podSelector"]["matchLabels"]) == 1, name
    [budget] = of_kind("everything", "PodDisruptionBudget").values()
    assert found(budget["spec"]["selector"]["matchLabels"]) == 1
    [monitor] = of_kind("everything", "ServiceMonitor").values()
    [watched] = [
        service
        for service in of_kind("everything", "Service").values()
        if monitor["spec"]["selector"]["matchLabels"].items()
        <= service["metadata"]["labels"].items()
    ]
    assert watched["metadata"]["name"] == "mem-memserver"


def _ports(pod: Manifest) -> list[Manifest]:
    return [port for each in pod["spec"]["containers"] for port in each.get("ports", ())]


async def test_it_scales_on_metrics_that_the_server_has(database: OneDatabase):
    [scaled] = of_kind("everything", "ScaledObject").values()
    assert scaled["spec"]["scaleTargetRef"]["name"] == "mem-memserver"
    assert "replicas" not in of_kind("everything", "Deployment")[""]["spec"]
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    used = set(re.findall(r"\bmemserver_\w+", query))
    assert used == {"memserver_turns_waiting", "memserver_agents_waiting"}
    async with serving(database, ScriptedModel()) as server:
        shown = (await server.http.get("/metrics")).text
    assert used <= set(re.findall(r"^# TYPE (\w+) gauge$", shown, re.MULTILINE))


def test_the_cluster_of_postgres_has_what_memserver_needs(fresh_server: EmbeddedPostgres):
    [cluster] = of_kind("plain", "Cluster").values()
    initdb = cluster["spec"]["bootstrap"]["initdb"]
    with psycopg.connect(fresh_server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {initdb['owner']} LOGIN".encode())
        connection.execute(f"CREATE DATABASE {initdb['database']} OWNER {initdb['owner']}".encode())
    with psycopg.connect(fresh_server.url(initdb["database"]), autocommit=True) as connection:
        for statement in initdb["postInitApplicationSQL"]:
            connection.execute(statement.encode())
    assert initdb["owner"] == OWNER_ROLE
    assert migrate(fresh_server.url(initdb["database"], OWNER_ROLE)) == newest_revision()
    with psycopg.connect(fresh_server.url(initdb["database"], APP_ROLE)) as connection:
        assert connection.execute("SELECT count(*) FROM agents").fetchone() == (0,)
    [role] = cluster["spec"]["managed"]["roles"]
    assert role["name"] == APP_ROLE
    secret = of_kind("plain", "Secret")["app-role"]
    assert secret["metadata"]["name"] == role["passwordSecret"]["name"]
    made = secret["stringData"]
    assert (
        made["url"]
        == f"postgresql://memserver_app:{made['password']}@mem-memserver-postgres-rw:5432/memserver"
    )
    assert (
        "@mem-memserver-pooler:5432"
        in of_kind("everything", "Secret")["app-role"]["stringData"]["url"]
    )


def test_searches_run_on_the_standbys_of_the_cluster_where_that_is_wanted():
    options = ("template", "mem")
    status, printed, error = helm(*options, values=("readReplicas=true",))
    assert status == 0, error
    manifests = {each["kind"]: each for each in yaml.safe_load_all(printed) if each}
    [made] = [each for each in yaml.safe_load_all(printed) if each and each["kind"] == "Secret"]
    password = made["stringData"]["password"]
    assert made["stringData"]["read-url"] == (
        f"postgresql://memserver_app:{password}@mem-memserver-postgres-ro:5432/memserver"
    )
    parameters = manifests["Cluster"]["spec"]["postgresql"]["parameters"]
    assert parameters["hot_standby_feedback"] == "on"
    assert parameters["shared_buffers"] == "512MB"
    assert "read-url" not in of_kind("plain", "Secret")["app-role"]["stringData"]
    [plain] = of_kind("plain", "Cluster").values()
    assert "hot_standby_feedback" not in plain["spec"]["postgresql"]["parameters"]
    poolers = of_kind("everything", "Pooler")
    assert {name: each["spec"]["type"] for name, each in poolers.items()} == {
        "pooler": "rw",
        "pooler-ro": "ro",
    }
    pooled = of_kind("everything", "Secret")["app-role"]["stringData"]["read-url"]
    assert "@mem-memserver-pooler-ro:5432" in pooled


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("adminKey.existingSecret=", "without an API key"),
        ("postgres.enabled=false", "name the database's secret"),
        ("database.existingSecret=mine", "not both"),
        ("vllm.enabled=false", "llm.baseUrl"),
        ("readReplicas=true,postgres.instances=1", "needs a standby"),
        ("secretSettings.MEMSERVER_X.name=one", "key"),
        ("replicas=0", "minimum"),
        ("replica=2", "additional properties"),
        ("settings.database_url=x", "'database_url' does not match pattern"),
        ("terminationGracePeriodSeconds=5", "minimum"),
        ("vllm.image=vllm/vllm-openai:latest", "pattern"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(value: str, complaint: str):
    status, _, error = helm("template", "mem", values=(value,))
    assert status != 0
    assert complaint in error


def test_versions_are_those_of_the_server_and_the_compose_file():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == memserver.__version__
    compose = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text("utf-8"))
    used = container("plain", "Deployment", "vllm")["image"]
    assert used == compose["services"]["vllm"]["image"]
    assert container("plain", "Deployment", "")["image"] == compose["services"]["migrate"]["image"]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    [vllm] = project["project"]["optional-dependencies"]["vllm"]
    assert vllm.startswith(f"vllm=={used.rpartition(':v')[2]};")


def test_the_notes_say_how_to_reach_it_and_the_page_names_every_value():
    status, printed, _ = helm("install", "mem", "--dry-run=client", values=EVERYTHING)
    assert status == 0
    assert "https://memserver.example/v1/ready" in printed.partition("NOTES:")[2]
    page = (CHART / "README.md").read_text("utf-8")
    for name in yaml.safe_load((CHART / "values.yaml").read_text("utf-8")):
        assert re.search(rf"`{name}[`.]", page), name
