# Two images from one file, both without root and without a shell in their way:
#   docker build -t grove:0.1.0 .                            operator, scheduler, CRDs, command line
#   docker build -t grove-initc:0.1.0 --target initc .       what holds back a pod until others are ready
# The operator adds its own version to the second name, so tag both with `grove version`.
ARG PYTHON=python:3.11-slim

FROM ${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
RUN python -m venv /opt/grove
# Dependencies first: they change seldom, and every one has its hash.
COPY requirements/runtime.txt requirements/runtime.txt
RUN /opt/grove/bin/pip install --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/grove/bin/pip install --no-deps .

# Runs in every pod that waits for others, so it is small: the standard library and one package of ours.
FROM ${PYTHON} AS initc
COPY src/grove/__init__.py /opt/grove/grove/__init__.py
COPY src/grove/startup /opt/grove/grove/startup
ENV PYTHONPATH=/opt/grove PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["python", "-m", "grove.startup"]

FROM ${PYTHON} AS grove
COPY --from=build /opt/grove /opt/grove
ENV PATH=/opt/grove/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["grove"]
CMD ["--help"]
