"""A task whose outputs are the gradients of another one.

So every gate asks for gradients what it asks for outputs: a backward that is written by hand is
judged as a kernel of its own.
"""

from __future__ import annotations

from dataclasses import replace

from .model import Task

_SOURCE = '''

_ForwardModel, _forward_inputs = Model, get_inputs


class Model(_ForwardModel):
    def forward(self, *arguments):
        """Return gradients of the inputs, then of the parameters, for a given output gradient.

        Takes the inputs of the forward, and the gradient of its output.
        """
        *inputs, grad_output = arguments
        with torch.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in inputs]
            output = super().forward(*leaves)
            return torch.autograd.grad(output, [*leaves, *self.parameters()], grad_output)


def get_inputs():
    inputs = _forward_inputs()
    return [*inputs, torch.randn_like(inputs[{like}])]
'''


def gradient_task(task: Task, *, like: int, dtypes: tuple[str, ...]) -> Task:
    """The task to compute the vector-Jacobian product of another task's reference.

    Its module takes the inputs of that reference, all floating tensors, and the gradient of its
    single output. It returns the gradients of the inputs in order, then those of the parameters.

    Args:
        task: whose gradients are wanted.
        like: index of the input that has the shape of the output.
        dtypes: those that a candidate may not refuse; questions are asked in the first.
    """
    return replace(
        task,
        id=f"{task.id}_gradients",
        source=task.source.rstrip("\n") + "\n" + _SOURCE.format(like=like),
        domains=(*task.domains, "real"),
        dtypes=dtypes,
        gradients=False,
    )
