"""The core of Coset: what a plan is and how it is made. It knows the standard library, msgspec, in `s3_store` boto3.

Whoever writes pipelines imports `coset`; all else is imported by module.
"""
