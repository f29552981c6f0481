"""How many tasks and groups there should be, and which keys are hot."""
