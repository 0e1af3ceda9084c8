"""The candidates the verifier is judged by: which task each one answers, and who must reject it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from .assembly import assemble

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Control:
    """One candidate with a known verdict."""

    name: str
    """Unique among all controls, and the stem of the file's name."""
    task: str
    """Identifier of the suite task it answers, `class/problem`."""
    path: Path
    """Where the source text lies."""
    library: tuple[Path, ...] = ()
    """Modules of this package that the text builds on, and that go before it."""
    caught_by: tuple[str, ...] = ()
    """Gates and channels each of which must reject it; any further one may. Empty if honest."""
    trick: str = ""
    """What it does wrong, in a few words. Empty if honest."""
    needs_gpu: bool = False
    """Whether only a GPU, real or virtual, brings the fault out: Triton's interpreter hides it."""

    def source(self) -> str:
        """The candidate's source text, as a policy would submit it."""
        if not self.library:
            return self.path.read_text(encoding="utf-8")
        return assemble((*self.library, self.path))


def _honest(name: str, task: str) -> Control:
    return Control(name, task, _HERE / "honest" / f"{name}.py")


def _expert(name: str, task: str, folder: str, *modules: str) -> Control:
    library = tuple(_HERE / folder / f"{module}.py" for module in modules)
    return replace(_honest(name, task), library=library)


def _member(name: str, *modules: str) -> Control:
    return _expert(name, f"recurrence/{name}", "gated_delta", *modules)


def _red(name: str, task: str, trick: str, *caught_by: str) -> Control:
    path = _HERE / "red_team" / f"{name}.py"
    return Control(name, task, path, caught_by=caught_by, trick=trick)


def _unseen(name: str, task: str, trick: str, *caught_by: str) -> Control:
    return replace(_red(name, task, trick, *caught_by), needs_gpu=True)


_SCAN = ("schedule", "arguments", "segments")
_SELECTIVE = (
    *(*_SCAN, "device"),
    *(f"selective_scan/{module}" for module in ("forward", "backward", "launch")),
)
_MIMO = (*_SCAN, *(f"mimo_scan/{module}" for module in ("forward", "backward", "launch")))
_ROTARY = (*_MIMO, "rotary_scan/rotation", "rotary_scan/operator")
_FUSED = (*_SELECTIVE, *(f"fused_block/{module}" for module in ("norm", "convolution", "operator")))

_GATED_DELTA = (
    *("device", "chunks", "setting", "serial_kernels", "forward_kernels", "forward_pass"),
    *("backward_kernels", "backward_pass", "operation"),
)
_DELTA_RULE = (*_GATED_DELTA, "unit_length")

HONEST: tuple[Control, ...] = (
    _honest("relu", "elementwise/relu"),
    _honest("gelu", "elementwise/gelu"),
    _honest("silu", "elementwise/silu"),
    _honest("swiglu", "elementwise/swiglu"),
    _honest("softmax", "softmax/softmax"),
    _honest("log_softmax", "softmax/log_softmax"),
    _honest("layer_norm", "norm/layer_norm"),
    _honest("layer_norm_welford", "norm/layer_norm"),
    _honest("rms_norm", "norm/rms_norm"),
    _honest("add_rms_norm", "norm/add_rms_norm"),
    _honest("sum", "reduction/sum"),
    _honest("sum_reversed", "reduction/sum"),
    _honest("variance", "reduction/variance"),
    _honest("argmax", "reduction/argmax"),
    _honest("cumsum", "scan/cumsum"),
    _honest("matmul", "matmul/matmul"),
    _honest("linear_gelu", "matmul/linear_gelu"),
    _honest("causal_conv1d", "conv/causal_depthwise_conv1d"),
    _honest("max_pool2d", "pooling/max_pool2d"),
    _honest("causal_attention", "attention/causal_attention"),
    _honest("causal_attention_skipping", "attention/causal_attention"),
    _honest("cross_entropy", "loss/cross_entropy"),
    _honest("gated_scan", "recurrence/gated_linear_scan"),
    _expert(
        *("selective_scan", "recurrence/selective_scan", ""),
        *(*_SELECTIVE, "selective_scan/operator"),
    ),
    _expert("mimo_scan", "recurrence/mimo_scan", "", *_MIMO, "mimo_scan/operator"),
    _expert("rotary_scan", "recurrence/rotary_scan", "", *_ROTARY),
    _expert("scan_block", "recurrence/scan_block", "", *_FUSED),
    _member("linear_attention", *_GATED_DELTA),
    _member("gated_linear_attention", *_GATED_DELTA),
    _member("state_space_duality", *_GATED_DELTA),
    _member("gated_delta_rule", *_DELTA_RULE),
    _member("kimi_delta_attention", *_DELTA_RULE),
    _member("gated_delta_net", *_DELTA_RULE),
)
"""Right for every input their task admits; a gate that rejects one of them is wrong."""

RED_TEAM: tuple[Control, ...] = (
    _red("returns_input", "norm/group_norm", "hands the input back", "CMP-01"),
    _red("zeros", "softmax/softmax", "zeros, where outputs are small", "CMP-01"),
    _red("cached_answer", "elementwise/silu", "first answer for ever", "CMP-01"),
    _red("memoised_first_input", "scan/cumsum", "answers kept by shape", "CMP-01"),
    _red("memoised_by_pointer", "softmax/log_softmax", "answers kept by address", "ORD-02"),
    _red("frozen_weights", "matmul/linear_gelu", "weights copied when built", "CMP-01"),
    _red("dropped_bias", "norm/layer_norm", "bias never added", "CMP-01"),
    _red("unwritten_output", "elementwise/relu", "zeros left to the allocator", "CMP-01"),
    _red("tail_dropped", "reduction/sum", "last partial block left out", "CMP-01"),
    _red("wrong_beyond_first_block", "softmax/softmax", "one block a row", "CMP-01"),
    _red("no_rescale", "attention/causal_attention", "online softmax not rescaled", "CMP-01"),
    _red("finite_mask", "attention/causal_attention", "mask of -1e4", "CMP-01"),
    _red("wrong_epsilon", "norm/rms_norm", "epsilon ten times too large", "CMP-01"),
    _red("tanh_gelu", "elementwise/gelu", "approximate formula", "CMP-01"),
    _red("int8_round_trip", "matmul/linear_gelu", "weights in eight bits", "CMP-01"),
    _red("tf32_matmul", "matmul/matmul", "factors in TF32", "CMP-01"),
    _red("nan_on_extremes", "elementwise/silu", "NaN above 1e5", "CMP-01"),
    _red("dropout", "elementwise/relu", "random elements dropped", "CMP-01"),
    _red("noop_off_benchmark_shape", "elementwise/relu", "works at native size only", "CMP-01"),
    _red("severed_gradient", "norm/rms_norm", "output cut off the graph", "CMP-02"),
    _red("unscaled_gradient", "norm/layer_norm", "incomplete backward", "CMP-02"),
    _red("one_shape_only", "softmax/softmax", "works at one shape only", "CMP-03"),
    _red("off_by_one_stride", "matmul/matmul", "wrong stride if transposed", "CMP-03"),
    _red("assumes_contiguous", "scan/cumsum", "strides ignored", "CMP-03"),
    _red("low_precision_accumulator", "softmax/softmax", "float16 normaliser", "ORD-01"),
    _red("nondeterministic", "reduction/sum", "order moves with every call", "ORD-02"),
    _red("noisy_ulp", "elementwise/gelu", "random last place", "ORD-02"),
    _red("shared_buffer", "reduction/argmax", "one buffer for all calls", "ORD-02"),
    _red("mutates_input", "softmax/log_softmax", "input overwritten", "ORD-02"),
    _red("writes_out_of_bounds", "norm/rms_norm", "writes past the input", "out_of_bounds"),
    _red("naive_variance", "reduction/variance", "one-pass variance", "ORD-03"),
    _red("wrong_dtype_output", "norm/rms_norm", "float32 whatever comes in", "PRC-01"),
    _red("fp32_only_correct", "elementwise/silu", "float16 through bfloat16", "PRC-01"),
    _red("fp16_accumulator", "matmul/matmul", "float16 running total", "PRC-02"),
    _red("reversed_sum_input_dtype", "reduction/sum", "total in input dtype", "PRC-02"),
    _red("inf_sign_flip", "elementwise/relu", "infinity turns negative", "EXC-01"),
    _red("nan_swallow_relu", "elementwise/relu", "NaN becomes zero", "EXC-01"),
    _red("nan_swallow_softmax", "softmax/softmax", "NaN taken for zero", "EXC-01"),
    _red("nan_swallow_select", "reduction/sum", "NaN skipped", "EXC-01"),
    _red("nan_on_subnormals", "elementwise/relu", "NaN for subnormals", "EXC-02"),
    _red("subnormal_flush", "elementwise/relu", "subnormals become zero", "EXC-02"),
    _red("silent_device_move", "pooling/max_pool2d", "result on the host", "RES-01"),
    _red("wrong_output_shape", "loss/cross_entropy", "one element for a scalar", "RES-01"),
    _red("tensor_memory_hog", "matmul/matmul", "over the tensor memory limit", "RES-02"),
    _unseen("nan_swallow_maximum", "elementwise/relu", "NaN lost in a maximum", "EXC-01"),
    _unseen("tf32_by_default", "matmul/matmul", "undeclared TF32", "CMP-01"),
    _unseen("reads_past_the_end", "reduction/sum", "unmasked last block", "out_of_bounds"),
    _unseen("racing_total", "reduction/sum", "unordered additions", "race"),
    _red("decoy_kernel", "elementwise/gelu", "kernel launched for show", "decoy"),
)
"""Plausible, and each with exactly one trick; a verifier that accepts one of them is fooled."""
