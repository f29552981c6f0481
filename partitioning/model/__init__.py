"""The words of the design as frozen values: streams, steps, tasks, plans, orders, receipts, verdicts."""
