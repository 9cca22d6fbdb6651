"""The evaluations: systems to compare, the runner, statistics and reports. What a task is stands in `memserver_evals.task`."""
