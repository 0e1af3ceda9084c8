"""Hand-written Triton kernels: honest positive controls and the red team."""

if __name__ != "lethe_env.kernels":
    raise ImportError("import lethe_env.kernels: the folder kernels/ is not a package of its own")
