"""The engine: runs orders, from readers to writers, without Spark."""
