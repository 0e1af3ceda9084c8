"""The twelve gates, the oracle and the rounding model: what a correct kernel must satisfy."""

if __name__ != "lethe_env.gates":
    raise ImportError("import lethe_env.gates: the folder gates/ is not a package of its own")
