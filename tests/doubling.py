"""The cheapest problem with a shape family: twice a vector, one constant for its length."""

DOUBLE = """
import torch
n = 64
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.randn(n)]
def get_init_inputs():
    return []
"""
