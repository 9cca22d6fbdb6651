"""What a database server must be and have before memserver can use it; names the command that fixes it."""

import psycopg
from psycopg import sql

from memserver.errors import SetupError

APP_ROLE = "memserver_app"
MIN_POSTGRES = 150000
MIN_PGVECTOR = (0, 8)


def check_server(connection: psycopg.Connection) -> None:
    """Check version, pgvector and application role as the owner; make what the owner may make."""
    version = connection.info.server_version
    if version < MIN_POSTGRES:
        raise SetupError(
            f"PostgreSQL {version // 10000} is too old.", hint="memserver needs 15 or newer."
        )
    _require_pgvector(connection)
    _require_app_role(connection)


def check_encoding(url: str) -> None:
    """Check that the database holds any text, and counts characters as memserver does."""
    with psycopg.connect(url, connect_timeout=10) as connection:
        encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SetupError(
            f"The database's encoding is {encoding}; texts and their limits need UTF8.",
            hint="CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8', and name that one.",
        )


def check_app_url(url: str) -> None:
    """Check that the application's connection works and that row-level security binds it."""
    own = "Or set MEMSERVER_DATABASE_APP_URL to a login that is a member of memserver_app."
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            row = connection.execute("SELECT row_security_active('agents')").fetchone()
    except psycopg.OperationalError as error:
        raise SetupError(
            f"The application role can't connect: {error}".strip(),
            hint=f"As a superuser: GRANT {APP_ROLE} TO your owner role; {own}",
        ) from error
    if row is None or not row[0]:
        raise SetupError(
            "The application's connection is not bound by row-level security.",
            hint=f"It must not be the owner; a pooler may have dropped the role. {own}",
        )


def create_role(connection: psycopg.Connection, role: str, *, login: bool) -> None:
    """Create a role without any privilege, if there is none of the name."""
    if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone():
        return
    try:
        with connection.transaction():
            connection.execute(
                sql.SQL("CREATE ROLE {} NOSUPERUSER NOBYPASSRLS {}").format(
                    sql.Identifier(role), sql.SQL("LOGIN" if login else "NOLOGIN")
                )
            )
    except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
        return  # by another start, on another database of the server: no lock spans those
    if not login:
        connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(role)))


def _require_pgvector(connection: psycopg.Connection) -> None:
    hint = "As a superuser of this database: CREATE EXTENSION vector; (pgvector 0.8 or newer)."
    try:
        with connection.transaction():
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except psycopg.errors.InsufficientPrivilege as error:
        raise SetupError(
            "The extension vector is missing and this role can't create it.", hint=hint
        ) from error
    except (psycopg.errors.UndefinedFile, psycopg.errors.FeatureNotSupported) as error:
        raise SetupError("pgvector isn't installed on this server.", hint=hint) from error
    row = connection.execute(
        "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    ).fetchone()
    assert row is not None
    if tuple(int(part) for part in row[0].split(".")[:2]) < MIN_PGVECTOR:
        raise SetupError(f"pgvector {row[0]} is too old.", hint="memserver needs 0.8 or newer.")


def _require_app_role(connection: psycopg.Connection) -> None:
    try:
        with connection.transaction():
            create_role(connection, APP_ROLE, login=False)
    except psycopg.errors.InsufficientPrivilege as error:
        raise SetupError(
            f"The role {APP_ROLE} is missing and this role can't create it.",
            hint=f"As a superuser: CREATE ROLE {APP_ROLE}; GRANT {APP_ROLE} TO your owner role;",
        ) from error
