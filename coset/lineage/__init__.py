"""Lineage: batches as OpenLineage events, for the catalogues of others."""
