"""The Gymnasium face: the environment, its vector form, and the evaluation of many kernels."""
