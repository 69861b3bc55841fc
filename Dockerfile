# Magnetar as an image: any part, or all of them.
#
#   docker build -t magnetar .
#   docker run -p 6650:6650 -p 8080:8080 -v magnetar:/data magnetar
#
# The first stage makes an environment and fetches ZooKeeper; the second keeps only what runs.

FROM python:3.13-slim AS build

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 XDG_CACHE_HOME=/opt/magnetar/cache
RUN python -m venv /opt/magnetar/venv
ENV PATH=/opt/magnetar/venv/bin:$PATH

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY runtime runtime
COPY protocol protocol
COPY client client
COPY bookie bookie
COPY broker broker
COPY cli cli
RUN pip install '.[standalone]' && magnetar setup --check

FROM python:3.13-slim

RUN useradd --uid 10000 --create-home magnetar && install -d -o magnetar /data
COPY --from=build /opt/magnetar /opt/magnetar
ENV PATH=/opt/magnetar/venv/bin:$PATH XDG_CACHE_HOME=/opt/magnetar/cache PYTHONUNBUFFERED=1

USER magnetar
WORKDIR /data
VOLUME /data
# Pulsar protocol, REST; bookie, ZooKeeper and their metrics where a part runs alone.
EXPOSE 6650 8080 3181 2181 8000

ENTRYPOINT ["magnetar"]
CMD ["standalone", "--data-dir", "/data", "--bind-address", "0.0.0.0"]
