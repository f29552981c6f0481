"""The version of Coset. Each plan names the version that made it. docs/internals/upgrades.md is the changelog."""

VERSION = "0.3.0"
