# Two images. The last one, which docker-compose.yml builds, has what Coset needs, and Coset is the checkout, mounted at
# /coset. The target `coset` has Coset itself, for executors and drivers of a cluster:
#   docker build --target coset --tag registry.example.org/coset .
# BASE may be an image of yours that is made from this one, with your certificates and your pip.conf.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS needs
RUN apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps && rm -rf /var/lib/apt/lists/*
WORKDIR /coset
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
ENV SPARK_HOME=/usr/local/lib/python3.11/site-packages/pyspark

FROM needs AS coset
COPY pyproject.toml README.md LICENSE ./
COPY coset coset
COPY expectations expectations
COPY partitioning partitioning
COPY spark_jobs spark_jobs
RUN pip install --no-cache-dir --no-deps . && rm -rf /coset/*
# Kubernetes runs the pod of an executor by this one word.
RUN printf '#!/bin/sh\nexec python -m spark_jobs.executor_pod\n' > /usr/local/bin/executor && chmod +x /usr/local/bin/executor
WORKDIR /

FROM needs AS mounted
# The database of Airflow: an empty volume takes over whose these folders are.
RUN apt-get update && apt-get install --yes --no-install-recommends postgresql && \
    rm -rf /var/lib/apt/lists/* /var/lib/postgresql/* && install --directory --owner=postgres --mode=700 /postgres && \
    install --directory --owner=postgres /postgres-socket
ENV PATH=$PATH:/usr/lib/postgresql/15/bin
RUN printf '#!/bin/sh\nexec python -m coset.cli.main "$@"\n' > /usr/local/bin/coset && chmod +x /usr/local/bin/coset
ENV PYTHONPATH=/coset
