"""The experiment: one policy trained twice, on what allclose accepts and on the contract."""
