# Both images for those who have Docker: the very files that `make image` packs, made by the same program.
#   docker build -t grove:0.2.0 .                            operator, scheduler, CRDs, command line
#   docker build -t grove-initc:0.2.0 --target initc .       what holds back a pod until others are ready
#   docker build -t grove:0.2.0 --build-arg OTEL=1 .         with the packages that export traces
# The operator adds its own version to the second name, so tag both with `grove version`.
ARG DEBIAN=debian:12-slim

FROM ${DEBIAN} AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3.11 python3-pip
WORKDIR /build
ARG OTEL=
COPY requirements requirements
COPY tools/image tools/image
COPY src src
RUN python3.11 tools/image roots --target /roots --cache /cache ${OTEL:+--otel}

# Runs in every pod that waits for others, so it is small: the standard library and one package of ours.
FROM scratch AS initc
COPY --from=build /roots/grove-initc /
ENV PATH=/usr/bin PYTHONPATH=/opt/grove PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 LANG=C.UTF-8 OPENBLAS_NUM_THREADS=1
LABEL org.opencontainers.image.title=grove org.opencontainers.image.version=0.2.0
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/usr/bin/python3.11", "-m", "grove.startup"]

FROM scratch AS grove
COPY --from=build /roots/grove /
ENV PATH=/usr/bin PYTHONPATH=/opt/grove PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 LANG=C.UTF-8 OPENBLAS_NUM_THREADS=1
LABEL org.opencontainers.image.title=grove org.opencontainers.image.version=0.2.0
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/usr/bin/python3.11", "-m", "grove"]
CMD ["--help"]
