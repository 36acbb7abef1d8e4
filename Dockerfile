# An image for the workers of Apache Beam: docs/large_data.md says how it is used.
#
#   docker build --tag REGISTRY/jaxsyn .
#
# A worker must have the same Beam, and the same minor version of Python, as the
# machine that starts the pipelines: --build-arg BEAM=2.77.0 --build-arg PYTHON=3.11

ARG PYTHON=3.11
ARG BEAM=2.77.0

FROM apache/beam_python${PYTHON}_sdk:${BEAM} AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM apache/beam_python${PYTHON}_sdk:${BEAM}
ARG BEAM
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "apache-beam==${BEAM}" \
    "$(echo /wheels/jaxsyn-*.whl)[beam,remote,zstd]"
# Beam's entry point stays, and starts the worker.
