"""Where records lie after each step, and where they must move (KAFKA-7294)."""
