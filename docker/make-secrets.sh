#!/bin/sh
# Write the secrets of docker-compose.yml, each into a file of its own; those that are there stay.
#
#   docker/make-secrets.sh [FOLDER]
#
# The folder is closed to other accounts. The files are not: in a container each is read by an account of its own.
# GENERATE_KEY is the command that prints an API key, SERVER_NAME the name in the certificate.
set -eu
folder=${1:-secrets}
umask 022
mkdir -p "$folder"
chmod 700 "$folder"
cd "$folder"

write() { # NAME: what comes on standard input, unless the file is there
  if [ -e "$1" ]; then
    cat >/dev/null
  else
    cat >"$1.new" && mv "$1.new" "$1"
  fi
}

for name in postgres owner app grafana; do
  openssl rand -hex 24 | write "${name}_password"
done
url() { # ROLE: its URL of the database, with its password
  read -r password <"$1_password"
  echo "postgresql://memserver_$1:$password@postgres:5432/memserver"
}
url owner | write database_url
url app | write database_app_url
for name in llm_api_key embedding_api_key database_read_url; do
  write $name </dev/null # empty: the endpoint wants none, there is no read replica
done
[ -e admin_key ] || key=$(${GENERATE_KEY:-docker run --rm memserver:0.1.0 memserver keys generate})
echo "${key:-}" | write admin_key
if [ ! -e tls.crt ]; then # browsers warn of it; put your own there
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 825 -keyout tls.key.new -out tls.crt.new \
    -subj "/CN=${SERVER_NAME:-localhost}" -addext "subjectAltName=DNS:${SERVER_NAME:-localhost},IP:127.0.0.1" 2>/dev/null
  chmod 644 tls.key.new
  mv tls.key.new tls.key && mv tls.crt.new tls.crt
fi
