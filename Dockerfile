# Geminga as an image: any part, or all of them.
#
#   docker build -t geminga .
#   docker run -p 6650:6650 -p 8080:8080 -v geminga:/data geminga
#
# The first stage makes an environment and fetches ZooKeeper; the second keeps only what runs.

FROM python:3.13-slim AS build

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 XDG_CACHE_HOME=/opt/geminga/cache
RUN python -m venv /opt/geminga/venv
ENV PATH=/opt/geminga/venv/bin:$PATH

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY runtime runtime
COPY protocol protocol
COPY client client
COPY bookie bookie
COPY broker broker
COPY cli cli
RUN pip install '.[standalone]' && geminga setup --check

FROM python:3.13-slim

RUN useradd --uid 10000 --create-home geminga && install -d -o geminga /data
COPY --from=build /opt/geminga /opt/geminga
ENV PATH=/opt/geminga/venv/bin:$PATH XDG_CACHE_HOME=/opt/geminga/cache PYTHONUNBUFFERED=1

USER geminga
WORKDIR /data
VOLUME /data
# Pulsar protocol, REST; bookie, ZooKeeper and their metrics where a part runs alone.
EXPOSE 6650 8080 3181 2181 8000

ENTRYPOINT ["geminga"]
CMD ["standalone", "--data-dir", "/data", "--bind-address", "0.0.0.0"]
