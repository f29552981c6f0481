"""The core of Coset: what a plan is and how it is made. Standard library only, but for `store` (boto3)."""
