# One image for all programs: mqbroker, mqnamesrv, mqadmin. `docker build -t ledgermq .`
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
WORKDIR /src
# Packages first: they change less often than the sources.
COPY deploy/setup deploy/setup
RUN deploy/setup build && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake --preset release -DLEDGERMQ_TESTS=OFF && cmake --build build --target mqbroker mqnamesrv mqadmin && strip build/bin/*

FROM ${BASE}
COPY deploy/setup /usr/local/lib/ledgermq/setup
RUN /usr/local/lib/ledgermq/setup runtime && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 7011 ledgermq \
    && useradd --system --uid 7011 --gid ledgermq --home-dir /var/lib/ledgermq --create-home --shell /usr/sbin/nologin ledgermq
COPY --from=build /src/build/bin/mqbroker /src/build/bin/mqnamesrv /src/build/bin/mqadmin /usr/local/bin/
COPY deploy/conf /etc/ledgermq
USER ledgermq
WORKDIR /var/lib/ledgermq
VOLUME /var/lib/ledgermq
# Name server, broker and its second port, peers.
EXPOSE 9876 10911 10909 20911
STOPSIGNAL SIGTERM
CMD ["mqbroker", "-c", "/etc/ledgermq/broker.conf"]
