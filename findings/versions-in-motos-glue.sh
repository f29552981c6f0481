#!/bin/sh
# Two UpdateTable requests to moto 5.2.5's Glue, which both name the version that the table had before (boto3 1.44.5).
# Guess: as AWS, it refuses the second by ConcurrentModificationException. By this commits of Iceberg's Glue catalogues know that they lost.
# Seen:  moto takes VersionId and looks at it nowhere: both succeed, and what the first one said is gone. A test of racing commits passes.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check 'moto[glue]==5.2.5' boto3==1.44.5
AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_DEFAULT_REGION=us-east-1 "$home/v/bin/python" - <<'END'
import boto3
from moto import mock_aws

with mock_aws():
    glue = boto3.client("glue")
    glue.create_database(DatabaseInput={"Name": "shop"})
    glue.create_table(DatabaseName="shop", TableInput={"Name": "orders"})
    read = glue.get_table(DatabaseName="shop", Name="orders")["Table"]["VersionId"]
    for who in ("one", "other"):
        said = {"Name": "orders", "Parameters": {"metadata_location": who}}
        glue.update_table(DatabaseName="shop", TableInput=said, VersionId=read)
        print(f"{who}: changed version {read}")
    left = glue.get_table(DatabaseName="shop", Name="orders")["Table"]
    print("left:", left["VersionId"], left["Parameters"])
    assert left["Parameters"] == {"metadata_location": "other"}, "it has changed"
END
