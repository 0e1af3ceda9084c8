"""Arithmetic: every instruction that maps register bits to register bits, as LLVM IR."""
