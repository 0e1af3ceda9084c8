"""A drop-in for KernelBench's grader, with the contract behind it.

`from lethe_env.kernelbench import eval_kernel_against_ref` in the place of `from kernelbench.eval
import eval_kernel_against_ref`: same parameters, same result, another verdict.
"""

from .evaluation import eval_kernel_against_ref
from .metadata import (
    check_metadata_serializable,
    check_metadata_serializable_all_types,
    get_error_name,
    get_tolerance_for_precision,
    get_torch_dtype_from_string,
    register_and_format_exception,
    set_seed,
)
from .models import (
    _process_input_tensor,
    build_compile_cache,
    build_compile_cache_legacy,
    build_compile_cache_with_capturing,
    graceful_eval_cleanup,
    load_custom_model,
    load_custom_model_with_tempfile,
    load_original_model_and_inputs,
    run_and_check_correctness,
)
from .problems import fetch_ref_arch_from_level_problem_id, fetch_ref_arch_from_problem_id
from .result import KernelExecResult

__all__ = [
    "KernelExecResult",
    "_process_input_tensor",
    "build_compile_cache",
    "build_compile_cache_legacy",
    "build_compile_cache_with_capturing",
    "check_metadata_serializable",
    "check_metadata_serializable_all_types",
    "eval_kernel_against_ref",
    "fetch_ref_arch_from_level_problem_id",
    "fetch_ref_arch_from_problem_id",
    "get_error_name",
    "get_tolerance_for_precision",
    "get_torch_dtype_from_string",
    "graceful_eval_cleanup",
    "load_custom_model",
    "load_custom_model_with_tempfile",
    "load_original_model_and_inputs",
    "register_and_format_exception",
    "run_and_check_correctness",
    "set_seed",
]
