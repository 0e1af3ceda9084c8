"""Policies and trainers that act in the gym."""

if __name__ != "lethe_env.agents":
    raise ImportError("import lethe_env.agents: the folder agents/ is not a package of its own")
