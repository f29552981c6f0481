"""What Spark runs: its entry points; the engine, the SQL of steps and the layout of tables have rooms of their own."""
