"""Who noticed? The same join of two topics in several systems, while something is wrong with the topics or a task."""
