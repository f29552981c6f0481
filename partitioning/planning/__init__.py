"""From a pipeline and what has arrived to the next plan.

`planner` makes the passes in this order: `arrivals`, `exchanges`, `stages`, `groups`, `check`.
"""
