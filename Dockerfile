# leaderq and the career of the demo cluster. Runs as nobody in particular, needs no writable file system, and works for any career:
#   docker run --rm leaderq-demo --help
# Careers of your own: FROM this image, and COPY them to /app.

FROM python:3.13-slim AS build
WORKDIR /src
COPY setup.cfg pyproject.toml README.rst LICENSE ./
COPY leaderq leaderq
COPY examples examples
# An environment without pip: the next stage takes what was installed, and nothing that could install more.
RUN python -m venv --without-pip /opt/leaderq \
    && pip --python /opt/leaderq install --no-cache-dir . 'psycopg[binary]>=3.2,<4'

FROM python:3.13-slim
LABEL org.opencontainers.image.title="leaderq" \
      org.opencontainers.image.description="Leader-elected consumers that stay alone and available" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/leaderq /opt/leaderq
COPY examples/ad_billing /app/ad_billing
WORKDIR /app
ENV PATH=/opt/leaderq/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A number, so that an orchestrator can see that it is not root.
USER 10001:10001
# Asks ZooKeeper only, and starts nothing. A leader that is cut off is unhealthy, though it stands again by itself.
HEALTHCHECK --interval=10s --timeout=8s --start-period=20s --retries=3 CMD ["leaderq", "doctor", "--quick"]
# PID 1 of `leaderq run` is the guardian: it passes signals on to the worker and reaps orphans.
ENTRYPOINT ["leaderq"]
CMD ["--help"]
