# Ebb on the CPU:
#   docker build -t ebb .
#   docker run --rm -it --user "$(id -u):$(id -g)" -v "$PWD:/work" -w /work ebb train --help
# docs/containers.md explains this file. tests/structure/test_containers runs its commands without Docker.

FROM debian:12 AS tools
COPY tools/setup /ebb/tools/setup
RUN /ebb/tools/setup

FROM tools AS build
COPY . /ebb
WORKDIR /ebb
RUN cmake --preset no-cuda -D EBB_TESTS=OFF -D EBB_BENCH=OFF
RUN cmake --build --preset no-cuda
RUN cd build/no-cuda && cpack -G DEB -B /package

# For .devcontainer/.
FROM tools AS development
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates ccache gdb git

# Only the package and what it depends on.
FROM debian:12-slim
RUN --mount=type=bind,from=build,source=/package,target=/package \
    apt-get update && apt-get install -y --no-install-recommends /package/*.deb && rm -rf /var/lib/apt/lists/*
ENTRYPOINT ["ebb"]
