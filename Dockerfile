# The image of every process of an installation; docker-compose.yml says which command each runs.
# hadolint checks this file (make check).
FROM python:3.11-slim-bookworm AS build
WORKDIR /app
# What else is installed: ldap, for LDAP_DIRECTORIES, and saml, for SAML_PROVIDERS (docs/sign-in.md); tracing and sentry
# (docs/operations.md, Traces and errors).
ARG EXTRAS=
# hadolint ignore=DL3008
RUN case " $EXTRAS " in *" ldap "*) apt-get update && apt-get install --yes --no-install-recommends \
    gcc libc6-dev libldap-dev libsasl2-dev && rm -rf /var/lib/apt/lists/*;; esac
COPY requirements/*.txt requirements/
RUN python -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements/installer.txt \
 && /venv/bin/uv pip install --no-cache --compile-bytecode --require-hashes --python /venv/bin/python -r requirements/base.txt \
 && for extra in $EXTRAS; do /venv/bin/uv pip install --no-cache --compile-bytecode --require-hashes --python /venv/bin/python -r "requirements/$extra.txt" || exit 1; done \
 && /venv/bin/uv pip uninstall --python /venv/bin/python uv
COPY manage.py CHANGELOG.md LICENSE ./
COPY portal portal
COPY quotas quotas
COPY workloads workloads
COPY templates templates
COPY docs docs
COPY static static
COPY locale locale
# Neither step looks at the key; it is not in the image.
RUN SECRET_KEY=build /venv/bin/python manage.py compile_messages \
 && SECRET_KEY=build /venv/bin/python manage.py collectstatic --noinput \
 && /venv/bin/python -m compileall -q portal quotas workloads

FROM python:3.11-slim-bookworm
ARG EXTRAS=
# hadolint ignore=DL3008
RUN case " $EXTRAS " in *" ldap "*) apt-get update && apt-get install --yes --no-install-recommends \
    libldap-2.5-0 libsasl2-modules && rm -rf /var/lib/apt/lists/*;; esac
# For `manage.py backup` and `restore`: pg_dump of the newest PostgreSQL reads every one that the portal runs on.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates postgresql-common \
 && /usr/share/postgresql-common/pgdg/apt.postgresql.org.sh -y \
 && apt-get install --yes --no-install-recommends postgresql-client-17 && rm -rf /var/lib/apt/lists/*
RUN groupadd --gid 10001 portal \
 && useradd --uid 10001 --gid portal --no-create-home --home-dir /data --shell /usr/sbin/nologin portal \
 && install --directory --owner portal --group portal /data
COPY --from=build /venv /venv
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    BIND_HOST=0.0.0.0 PORT=8000 DATA_DIR=/data
USER 10001:10001
VOLUME /data
EXPOSE 8000
CMD ["python", "manage.py", "serve"]
