# memserver with the local embedder on the CPU. The model and the database are elsewhere: docker-compose.yml.

FROM python:3.12-slim-trixie AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/memserver/bin:$PATH
RUN python -m venv /opt/memserver
# First and by itself: torch changes least, and without +cpu gigabytes of CUDA come with it.
RUN pip install --extra-index-url "$TORCH_INDEX" torch==2.13.0+cpu
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY constraints constraints
COPY migrations migrations
COPY prompts prompts
COPY recipes recipes
COPY memserver memserver
COPY memserver_evals memserver_evals
COPY sweet_rl sweet_rl
RUN pip install --constraint constraints/server.txt ".[local,files]"

FROM python:3.12-slim-trixie
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/memserver memserver
COPY --from=build /opt/memserver /opt/memserver
ENV PATH=/opt/memserver/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MEMSERVER_HOME=/var/lib/memserver \
    MEMSERVER_HOST=0.0.0.0
USER memserver
WORKDIR /var/lib/memserver
EXPOSE 8283
CMD ["memserver", "serve"]
