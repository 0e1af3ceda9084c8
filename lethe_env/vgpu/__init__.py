"""The virtual GPU: Triton's PTX, compiled just in time for the CPU and run faithfully."""
