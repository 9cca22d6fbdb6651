-- Run once by the Postgres image, as superuser in the new database: memserver's two roles, and pgvector.
-- memserver_owner owns the database and migrates; memserver_app serves, under row-level security.
\set owner_password `cat "$OWNER_PASSWORD_FILE"`
\set app_password `cat "$APP_PASSWORD_FILE"`
CREATE ROLE memserver_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE memserver_app LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'app_password';
ALTER DATABASE :"DBNAME" OWNER TO memserver_owner;
CREATE EXTENSION vector;
