"""What Spark runs. Its entry points are here; `engine/`, `sql/` and `tables/` know nothing of Spark."""
