"""Tasks: reference modules, their shape families, and how inputs are drawn for a probe."""

if __name__ != "lethe_env.tasks":
    raise ImportError("import lethe_env.tasks: the folder tasks/ is not a package of its own")
