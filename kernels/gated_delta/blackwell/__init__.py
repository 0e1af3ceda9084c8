"""Stages of the gated-delta backward written for Blackwell: tensor memory, TMA, warp roles."""
