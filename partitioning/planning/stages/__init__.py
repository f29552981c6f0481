"""From the graph with its exchanges to stages, their tasks and what each reads."""
