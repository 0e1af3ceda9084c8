"""Models: KernelBench's functions that load, run and compare modules.

A reference is code that the caller trusts, and is executed here. A candidate is not: what
`load_custom_model` returns is a class whose instances live in a cell, so that construction and
calls look the same and nothing of the candidate runs in this process.
"""

from __future__ import annotations

import atexit
import logging
import os
import tempfile as temporary
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn

from ..cell import CallRequest, ModelRequest, Workshop, default_device, review
from ..gates.kernelbench_rule import Rule, Tally, error_name
from ..gates.verdict import Status
from ..tasks.reference import one_line
from .evaluation import PRECISIONS
from .metadata import set_seed
from .result import KernelExecResult, trial_entries

log = logging.getLogger(__name__)


class CandidateError(RuntimeError):
    """A candidate that cannot be loaded, constructed or called, in one sentence."""


def load_original_model_and_inputs(
    model_original_src: str, context: dict[str, Any]
) -> tuple[Any, Any, Any] | None:
    """Execute a reference in `context`; returns `Model`, `get_init_inputs` and `get_inputs`.

    `None` if it cannot be executed; the reason is logged.
    """
    try:
        exec(compile(model_original_src, "<string>", "exec"), context)
    except Exception as error:  # noqa: BLE001 - a reference may fail in any way
        log.error("the reference cannot be executed: %s", one_line(error))
        return None
    return context.get("Model"), context.get("get_init_inputs"), context.get("get_inputs")


def load_custom_model(
    model_custom_src: str, context: dict[str, Any], build_directory: str | None = None
) -> type[nn.Module] | None:
    """A class that stands for the candidate's `ModelNew`; `None` if it is no Python.

    Args:
        model_custom_src: the candidate.
        context: gets the class as `ModelNew`. The candidate neither sees nor changes what is in it.
        build_directory: unused: kernels are compiled into the verifier's own cache.

    Raises:
        CandidateError: the source is refused or fails when it is loaded.
    """
    try:
        compile(model_custom_src, "<string>", "exec")
    except SyntaxError as error:
        log.error("the candidate is not Python: %s", one_line(error))
        return None
    context["ModelNew"] = remote_class(model_custom_src)
    return context["ModelNew"]


def load_custom_model_with_tempfile(
    model_custom_src: str, entry_point: str = "ModelNew"
) -> tuple[type[nn.Module], Any]:
    """The same, with a file that holds the source, which the caller has to delete.

    Raises:
        CandidateError: the source is refused or fails when it is loaded.
        ValueError: another entry point than `ModelNew`.
    """
    if entry_point != "ModelNew":
        raise ValueError(f"a candidate's class is called ModelNew, not {entry_point}")
    loaded = remote_class(model_custom_src)
    with temporary.NamedTemporaryFile(mode="w", suffix=".py", delete=False) as file:
        file.write(model_custom_src)
    return loaded, file


def remote_class(source: str) -> type[nn.Module]:
    """A module class whose instances live in a cell.

    Raises:
        CandidateError: the source is refused or fails when it is loaded.
    """
    fault = review(source)
    if fault is None:
        with _workshop().open(source) as cell:
            fault = cell.fault
    if fault is not None:
        raise CandidateError(fault.message)
    return type("ModelNew", (RemoteModel,), {"source": source})


class RemoteModel(nn.Module):
    """Stands for one instance of a candidate's `ModelNew`. It has no parameters to look at."""

    source = ""
    """The candidate's source text."""

    def __init__(self, *init_inputs: Any) -> None:
        """Remember how to construct it: with these arguments, under the seed set last."""
        super().__init__()
        self._init_inputs = init_inputs
        self._seed = torch.initial_seed()
        self._dtype = torch.float32
        self._cell = _workshop().open(self.source)
        weakref.finalize(self, self._cell.close)

    def forward(self, *inputs: Any) -> Any:
        """Call the candidate; several outputs come back as a tuple.

        Raises:
            CandidateError: it fails.
        """
        place = next((v.device for v in inputs if isinstance(v, torch.Tensor)), "cpu")
        model = ModelRequest(
            init_inputs=tuple(_on_host(value) for value in self._init_inputs),
            seed=self._seed,
            dtype=str(self._dtype).removeprefix("torch."),
        )
        request = CallRequest(model=model, inputs=tuple(_on_host(value) for value in inputs))
        seen = self._cell.call(request)
        if seen.fault is not None:
            name = seen.fault.exception or seen.fault.kind
            raise CandidateError(f"{name}: {seen.fault.message}")
        outputs = tuple(tensor.data.to(place) for tensor in seen.outputs)
        single = len(seen.outputs) == 1 and seen.outputs[0].path == "output"
        return outputs[0] if single else outputs

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        self._dtype = fn(torch.zeros(1, dtype=self._dtype)).dtype
        return super()._apply(fn, recurse)


def run_and_check_correctness(
    original_model_instance: nn.Module,
    new_model_instance: nn.Module,
    get_inputs_fn: Callable[[], list[Any]],
    metadata: dict[str, Any],
    num_correct_trials: int,
    verbose: bool = False,
    seed: int = 42,
    device: torch.device | None = None,
    backend: str = "cuda",
    precision: torch.dtype = torch.float32,
) -> KernelExecResult:
    """KernelBench's trials with two modules of the caller, by its rule and not by the contract.

    What the reference raises is raised, as there. `metadata` is filled and becomes the result's.
    """
    tally = Tally(Rule(trials=num_correct_trials, seed=seed, precision=PRECISIONS[precision]))
    with torch.no_grad():
        for trial_seed in tally.rule.trial_seeds():
            set_seed(trial_seed)
            drawn = get_inputs_fn()
            inputs = [_process_input_tensor(x, device, backend, precision) for x in drawn]
            set_seed(trial_seed)
            original = original_model_instance.to(device=device, dtype=precision)
            new = new_model_instance.to(device=device, dtype=precision)
            want = original(*inputs)
            try:
                tally.compare(want, new(*inputs))
            except Exception as error:  # noqa: BLE001 - whatever it raises counts against it
                tally.error = f"{error_name(error)}: {error}"
            if tally.decided:
                break
    finding = tally.finding()
    metadata.update(trial_entries(finding))
    if verbose:
        log.info("%s", finding.reason)
    return KernelExecResult(
        compiled=True, correctness=finding.status is Status.PASS, metadata=metadata
    )


def graceful_eval_cleanup(
    curr_context: dict[str, Any], device: torch.device, tempfile: Any = None
) -> None:
    """Give back what an evaluation held on the GPU, and delete its file."""
    if torch.cuda.is_available():
        with torch.cuda.device(device):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device=device)
            torch.cuda.synchronize(device=device)
    if tempfile:
        tempfile.close()
        os.remove(tempfile.name)


def build_compile_cache(
    custom_model_src: str, verbose: bool = False, build_dir: str | os.PathLike[str] | None = None
) -> tuple[bool, str, str | None]:
    """Load a candidate in a cell; whether that works, what it printed (nothing), and why not."""
    try:
        remote_class(custom_model_src)
    except CandidateError as error:
        return False, "", str(error)
    return True, "", None


build_compile_cache_legacy = build_compile_cache


def build_compile_cache_with_capturing(
    custom_model_src: str, verbose: bool = False, build_dir: str | os.PathLike[str] | None = None
) -> tuple[int, str, str]:
    """The same as a process would report it: exit code, standard output, standard error."""
    fine, printed, reason = build_compile_cache(custom_model_src, verbose, build_dir)
    return int(not fine), printed, reason or ""


def _process_input_tensor(
    input: Any,
    device: Any,
    backend: str = "cuda",
    precision: torch.dtype = torch.float32,
) -> Any:
    """A tensor on the device in the precision; integers are cast too, as in KernelBench."""
    if not isinstance(input, torch.Tensor):
        return input
    return input.to(dtype=precision).to(device=device)


def _on_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


@cache
def _workshop() -> Workshop:
    """One warm workshop for this process, ended with it."""
    shop = Workshop(default_device())
    atexit.register(shop.close)
    return shop
