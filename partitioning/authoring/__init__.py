"""Writing a pipeline, and the settings to plan it by."""
