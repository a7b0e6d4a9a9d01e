#!/bin/bash
# Makes the database of POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB (or what *_FILE hold) in an empty PGDATA, then runs the command
# as the user postgres. Until the database is made, the server is reached only through its socket. /docker-entrypoint-initdb.d is not
# looked at.
set -e

[ "${1:0:1}" != - ] || set -- postgres "$@"
if [ "$1" != postgres ]; then
    exec "$@"
fi
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"
    chmod 700 "$PGDATA"
    find "$PGDATA" \! -user postgres -exec chown postgres '{}' +
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi

of_variable_or_file() {
    local file="$1_FILE"
    if [ -n "${!file}" ]; then cat "${!file}"; else echo "${!1:-$2}"; fi
}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    user=$(of_variable_or_file POSTGRES_USER postgres)
    password=$(of_variable_or_file POSTGRES_PASSWORD "")
    database=$(of_variable_or_file POSTGRES_DB "$user")
    if [ -z "$password" ] && [ "$POSTGRES_HOST_AUTH_METHOD" != trust ]; then
        echo "Error: the database is not made and POSTGRES_PASSWORD is not given" >&2
        exit 1
    fi
    initdb --username="$user" --pwfile=<(printf '%s\n' "${password:-unused}") $POSTGRES_INITDB_ARGS -D "$PGDATA"
    echo "host all all all ${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}" >>"$PGDATA/pg_hba.conf"
    sed -i "s/^#listen_addresses.*/listen_addresses = '*'/" "$PGDATA/postgresql.conf"
    if [ "$database" != postgres ]; then
        pg_ctl -D "$PGDATA" -o "-c listen_addresses=''" --wait start
        echo 'CREATE DATABASE :"database"' |
            PGPASSWORD="$password" psql --no-psqlrc --set ON_ERROR_STOP=1 --set database="$database" --username "$user" --dbname postgres
        pg_ctl -D "$PGDATA" --mode fast --wait stop
    fi
fi
exec "$@"
