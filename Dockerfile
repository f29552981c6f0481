# The image of all services in docker-compose.yml. It has what Coset needs; Coset itself is the checkout, mounted at /coset.
# BASE may be an image of yours that is made from this one, with your certificates and your pip.conf.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
RUN apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps && rm -rf /var/lib/apt/lists/*
WORKDIR /coset
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
RUN printf '#!/bin/sh\nexec python -m coset.cli.main "$@"\n' > /usr/local/bin/coset && chmod +x /usr/local/bin/coset
ENV PYTHONPATH=/coset SPARK_HOME=/usr/local/lib/python3.11/site-packages/pyspark
