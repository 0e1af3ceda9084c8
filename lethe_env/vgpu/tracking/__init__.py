"""From a kernel to one that follows what nobody has written from where it is loaded to its use."""
