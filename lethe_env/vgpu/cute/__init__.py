"""Kernels in NVIDIA's CuTe DSL on the virtual GPU: the DSL's compiler and host code, our device."""
