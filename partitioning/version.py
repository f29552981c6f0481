"""The version of Coset. Each plan names the version that made it. docs/how-to/backups.md has the changelog."""

VERSION = "0.3.0"
