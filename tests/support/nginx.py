"""nginx, as Debian has it, with the configuration that docker-compose.yml mounts into its image."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.servers import free_port, wait_for

TEMPLATE = Path(__file__).parents[2] / "deploy/nginx/memserver.conf.template"
PROGRAM = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
needs_nginx = pytest.mark.skipif(PROGRAM is None, reason="nginx isn't installed")
_MAIN = """
daemon off;
user root;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {servers}
}}
"""
"""What nginx's image has around the files of conf.d, as far as it matters."""


def configured(folder: Path, variables: dict[str, str]) -> list[str]:
    """The command of nginx with the template, its variables filled in as the image does; checked by nginx itself."""
    text = re.sub(
        r"\$\{(\w+)\}", lambda found: variables[found[1]], TEMPLATE.read_text(encoding="utf-8")
    )
    (folder / "memserver.conf").write_text(text, encoding="utf-8")
    command = started_by(folder, f"include {folder}/memserver.conf;")
    subprocess.run([*command, "-t"], check=True)
    return command


def started_by(folder: Path, servers: str) -> list[str]:
    """The command of nginx with these blocks of servers."""
    file = folder / "nginx.conf"
    file.write_text(_MAIN.format(folder=folder, servers=servers), encoding="utf-8")
    return [str(PROGRAM), "-p", str(folder), "-e", "stderr", "-c", str(file)]


@contextmanager
def nginx_before(folder: Path, ports: Sequence[int], tls: Path) -> Iterator[str]:
    """The address of nginx before two servers, with the certificate in a folder."""
    port = free_port()
    first, second = (f"127.0.0.1:{each}" for each in ports)
    variables = {"LISTEN": f"127.0.0.1:{port}", "NAME": "localhost", "TLS": str(tls)}
    variables |= {"1": first, "2": second}
    named = {f"MEMSERVER_{name}": value for name, value in variables.items()}
    with subprocess.Popen(configured(folder, named)) as process:
        try:
            assert wait_for((folder / "nginx.pid").exists, 60)
            yield f"https://localhost:{port}"
        finally:
            process.terminate()
