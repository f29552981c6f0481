"""The version of Coset, which plans name as the one that made them. `docs/upgrades.md` says what each one changed."""

VERSION = "0.3.0"
