"""What Spark runs and what reads and writes data: sources, kernel, audit, publication."""
