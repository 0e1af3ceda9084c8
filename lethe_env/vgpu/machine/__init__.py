"""The machine: lowering to LLVM IR, memory, barriers, launches."""
