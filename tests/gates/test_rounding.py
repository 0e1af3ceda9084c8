import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lethe_env.gates.decompositions import decomposition_of
from lethe_env.gates.perturbation import RoundingMode
from lethe_env.gates.rounding import Estimate, Float64Mode, Precision, allowed, estimate

from .rounding_cases import CASES, HalfTotals, blocked_matmul, cut_to_tf32, normal

FLOAT32 = Precision(dtype=torch.float32)
FIXED = settings(derandomize=True, deadline=None, max_examples=50)


def double(tensors: list[Tensor]) -> list[Tensor]:
    return [t.double() if t.is_floating_point() else t for t in tensors]


def model(function, inputs: list[Tensor], precision: Precision = FLOAT32, **options) -> Estimate:
    wide = double(inputs)
    return estimate(lambda: [function(*wide)], precision, **options)


def ratio(actual: Tensor, found: Estimate, precision: Precision = FLOAT32, index: int = 0) -> float:
    """Largest error over its bound, where the truth is within the range of the output's dtype."""
    truth = found.values[index]
    bound = allowed(truth, found.deviation[index], precision, actual.dtype)
    charged = truth.abs() <= torch.finfo(actual.dtype).max
    over = ((actual.double() - truth).abs() / bound)[charged]
    return torch.nan_to_num(over, nan=math.inf).max().item()


def honest_ratio(name: str, dtype: torch.dtype, seed: int) -> float:
    torch.manual_seed(seed)
    case = CASES[name]
    precision = Precision(dtype=dtype)
    inputs = [x.to(dtype) for x in case.inputs()]
    found = model(case.function, inputs, precision, seed=seed)
    return ratio(case.function(*inputs), found, precision)


PAIRS = [(name, dtype) for name, case in CASES.items() for dtype in case.dtypes]


@pytest.mark.parametrize(("name", "dtype"), PAIRS, ids=lambda value: str(value).split(".")[-1])
def test_honest_eager_stays_under(name, dtype):
    assert max(honest_ratio(name, dtype, seed) for seed in range(2)) < 1


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.tf32])
def test_tf32_inputs_go_over(name):
    torch.manual_seed(1)
    case = CASES[name]
    inputs = case.inputs()
    found = model(case.function, inputs)
    assert ratio(case.function(*map(cut_to_tf32, inputs)), found) > 1.5


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.half_totals])
def test_half_totals_go_over(name):
    torch.manual_seed(1)
    case = CASES[name]
    inputs = case.inputs()
    with HalfTotals():
        wrong = case.function(*inputs)
    assert ratio(wrong, model(case.function, inputs)) > 1.5


@pytest.mark.parametrize("name", list(CASES))
def test_bound_is_not_vacuous(name):
    torch.manual_seed(2)
    case = CASES[name]
    found = model(case.function, case.inputs(), samples=4)
    bound = allowed(found.values[0], found.deviation[0], FLOAT32, torch.float32)
    scale = found.values[0].square().mean().sqrt()
    assert (bound.median() / scale).item() < case.median


@pytest.mark.parametrize("name", list(CASES))
def test_decomposition_computes_the_same_truth(name):
    torch.manual_seed(3)
    case = CASES[name]
    inputs = double(case.inputs())

    truth = case.function(*inputs)
    with RoundingMode(FLOAT32, lambda shape: torch.zeros(shape, dtype=torch.float64)):
        decomposed = case.function(*inputs)
    scale = truth.square().mean().sqrt()
    assert ((decomposed - truth).abs() <= 1e-12 * torch.maximum(truth.abs(), scale)).all()


HALVES = (torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", list(CASES))
def test_one_rounding_of_a_float32_result_stays_under(name, dtype):
    torch.manual_seed(4)
    inputs = [x.to(dtype) for x in CASES[name].inputs()]
    precision = Precision(dtype=dtype)
    found = model(CASES[name].function, inputs, precision)
    rounded = CASES[name].function(*[x.float() for x in inputs]).to(dtype)
    assert ratio(rounded, found, precision) < 1


def half_products_cut(a: Tensor, b: Tensor) -> Tensor:
    return cut_to_tf32(a) @ cut_to_tf32(b)


def test_tf32_passes_where_it_is_allowed():
    torch.manual_seed(0)
    inputs = [normal(64, 512), normal(512, 64)]
    precision = Precision(dtype=torch.float32, tf32=True)
    found = model(torch.matmul, inputs, precision)
    assert ratio(half_products_cut(*inputs), found, precision) < 1
    assert ratio(half_products_cut(*inputs), model(torch.matmul, inputs)) > 5
    half = inputs[0].bfloat16().float() @ inputs[1].bfloat16().float()
    assert ratio(half, found, precision) > 1


def two_pass(x: Tensor) -> Tensor:
    mean = x.sum(-1, keepdim=True) / x.shape[-1]
    variance = (x - mean).square().sum(-1, keepdim=True) / x.shape[-1]
    return (x - mean) / torch.sqrt(variance + 1e-5)


def welford(x: Tensor) -> Tensor:
    mean, squares = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    for count, column in enumerate(x.unbind(-1), 1):
        step = column - mean
        mean = mean + step / count
        squares = squares + step * (column - mean)
    scale = torch.rsqrt(squares / x.shape[-1] + 1e-5)
    return (x - mean[:, None]) * scale[:, None]


def single_pass(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (x.square().mean(-1, keepdim=True) - mean.square()).clamp(min=0)
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def layer_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


@pytest.mark.parametrize("mean", [0.0, 100.0, 8192.0])
def test_layer_norm_orders(mean):
    torch.manual_seed(0)
    x = normal(32, 512, mean=mean)
    found = model(layer_norm, [x])
    assert ratio(two_pass(x), found) < 1
    assert ratio(welford(x), found) < 1
    assert (ratio(single_pass(x), found) < 1) == (mean == 0.0)


def test_dropped_epsilon_goes_over():
    torch.manual_seed(0)
    x = normal(32, 512, scale=1e-2)
    assert ratio(F.layer_norm(x, x.shape[-1:], eps=0.0), model(layer_norm, [x])) > 10


def online_softmax(x: Tensor, block: int = 128) -> Tensor:
    top = torch.full_like(x[:, :1], -torch.inf)
    total = torch.zeros_like(top)
    for part in x.split(block, 1):
        higher = torch.maximum(top, part.amax(1, keepdim=True))
        total = total * torch.exp(top - higher) + torch.exp(part - higher).sum(1, keepdim=True)
        top = higher
    return torch.exp(x - top) / total


def test_online_softmax_stays_under():
    torch.manual_seed(0)
    x = normal(16, 4096, scale=3)
    found = model(lambda x: F.softmax(x, -1), [x])
    assert ratio(online_softmax(x), found) < 1
    base_two = torch.exp2((x - x.amax(1, keepdim=True)) * 1.4426950408889634)
    assert ratio(base_two / base_two.sum(1, keepdim=True), found) < 1


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "sum", "mean", "variance", "norm"])
def test_dropped_tail_goes_over(name):
    torch.manual_seed(0)
    [x] = CASES[name].inputs()
    short = CASES[name].function(x[:, :-1])
    if name == "softmax":
        short = torch.cat([short, torch.zeros_like(x[:, :1])], 1)
    assert ratio(short, model(CASES[name].function, [x])) > 5


@pytest.mark.parametrize("block", [1, 16, 64])
def test_blocked_matmul_stays_under(block):
    torch.manual_seed(0)
    inputs = [normal(32, 1024), normal(1024, 64)]
    found = model(torch.matmul, inputs)
    assert ratio(blocked_matmul(*inputs, block), found) < 1
    assert found.reduction_terms == 1024


@pytest.mark.parametrize("positive", [False, True])
def test_serial_and_pairwise_sums_stay_under(positive):
    torch.manual_seed(0)
    x = normal(64, 4096)
    x = x.abs() if positive else x
    serial, pairs = torch.zeros(64), x
    for column in x.unbind(1):
        serial = serial + column
    while pairs.shape[1] > 1:
        pairs = pairs[:, ::2] + pairs[:, 1::2]
    found = model(lambda x: x.sum(1), [x])
    assert ratio(serial, found) < 1
    assert ratio(pairs[:, 0], found) < 1


@pytest.mark.parametrize("spread", [0.0, 1e-6, 1e-4])
@pytest.mark.parametrize("operation", ["sum", "mean", "product"])
def test_terms_that_are_nearly_the_same_may_be_added_in_order(operation, spread):
    """Every addition is rounded the same way, so the errors grow with N and not with its root."""
    torch.manual_seed(0)
    x = 0.515551 + spread * torch.randn(8, 8191)
    serial = torch.zeros(8)
    for column in x.unbind(1):
        serial = serial + column
    reference, inputs = {
        "sum": (lambda x: x.sum(1), [x]),
        "mean": (lambda x: x.mean(1), [x]),
        "product": (torch.mv, [x, torch.ones(8191)]),
    }[operation]
    candidate = serial / 8191 if operation == "mean" else serial
    found = model(reference, inputs)
    assert ratio(candidate, found) < 1
    assert ratio(candidate * (1 + 1e-3), found) > 1


def test_terms_that_differ_leave_no_room_for_errors_of_one_kind():
    torch.manual_seed(0)
    alike, different = (0.5 + spread * torch.rand(1, 8191) for spread in (1e-7, 1e-1))
    loose, tight = (model(lambda x: x.sum(1), [x]) for x in (alike, different))
    assert loose.deviation[0].item() > 10 * tight.deviation[0].item()


def rows(x: Tensor) -> Tensor:
    return x.view(-1, 100)


def rms_normalised(x: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + torch.finfo(x.dtype).eps)


FORMULAS = {
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + torch.exp(-x))),
    "sigmoid by exp2": (torch.sigmoid, lambda x: 1 / (1 + torch.exp2(x * -1.4426950408889634))),
    "tanh": (torch.tanh, lambda x: 2 / (1 + torch.exp(-2 * x)) - 1),
    "silu": (F.silu, lambda x: x / (1 + torch.exp(-x))),
    "expm1": (torch.expm1, lambda x: torch.exp(x) - 1),
    "softplus": (F.softplus, lambda x: torch.where(x > 20, x, torch.log(1 + torch.exp(x)))),
    "elu": (F.elu, lambda x: torch.where(x > 0, x, torch.exp(x) - 1)),
    "gelu": (F.gelu, lambda x: x * (0.5 * (1 + torch.erf(x * 0.7071067811865476)))),
    "exp": (torch.exp, lambda x: torch.exp2(x * 1.4426950408889634)),
    "hardsigmoid": (F.hardsigmoid, lambda x: (x / 6 + 0.5).clamp(0, 1)),
    "hardsigmoid, multiplied": (F.hardsigmoid, lambda x: (x * (1 / 6) + 0.5).clamp(0, 1)),
    "hardsigmoid, shifted": (F.hardsigmoid, lambda x: (x + 3).clamp(0, 6) / 6),
    "hardswish": (F.hardswish, lambda x: x * (x / 6 + 0.5).clamp(0, 1)),
    "hardswish, shifted": (F.hardswish, lambda x: x * (x + 3).clamp(0, 6) * (1 / 6)),
    "selu": (
        F.selu,
        lambda x: (
            1.0507009873554805 * torch.where(x > 0, x, 1.6732632423543772 * (torch.exp(x) - 1))
        ),
    ),
    "mish": (F.mish, lambda x: x * (1 - 2 / ((1 + torch.exp(x.clamp(max=20))) ** 2 + 1))),
    "logsigmoid": (F.logsigmoid, lambda x: x.clamp(max=0) - torch.log(1 + torch.exp(-x.abs()))),
    "tanhshrink": (F.tanhshrink, lambda x: x - (2 / (1 + torch.exp(-2 * x)) - 1)),
    "rms norm": (lambda x: F.rms_norm(rows(x), (100,)), lambda x: rms_normalised(rows(x))),
    "cube": (lambda x: x**3, lambda x: x * x * x),
}


@pytest.mark.parametrize("name", list(FORMULAS))
def test_formulas_of_triton_authors_stay_under(name):
    torch.manual_seed(0)
    reference, formula = FORMULAS[name]
    x = torch.cat([normal(5_000), normal(5_000, scale=8), normal(5_000, scale=1e-4)])
    assert ratio(formula(x), model(reference, [x])) < 1


# gradients


def gradients(function, cotangent: Tensor):
    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        out = function(*leaves)
        return torch.autograd.grad(out, leaves, cotangent.to(out.dtype))

    return run


DIFFERENTIABLE = {
    "linear": (
        F.linear,
        lambda: [normal(64, 512), normal(128, 512, scale=1 / 32), normal(128)],
    ),
    "layer norm": (
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
        lambda: [normal(64, 512, mean=5), normal(512), normal(512)],
    ),
    "softmax": (lambda x: F.softmax(x, -1), lambda: [normal(64, 512)]),
    "gelu": (F.gelu, lambda: [normal(64, 512)]),
    "silu": (F.silu, lambda: [normal(64, 512)]),
    "sdpa": (
        F.scaled_dot_product_attention,
        lambda: [normal(1, 2, 64, 32) for _ in range(3)],
    ),
    "conv": (F.conv2d, lambda: [normal(2, 4, 12, 12), normal(8, 4, 3, 3)]),
    "batch norm": (
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda: [normal(4, 8, 8, 8)],
    ),
    "cross entropy": (lambda x: F.cross_entropy(x, torch.arange(64)), lambda: [normal(64, 512)]),
    "gather": (lambda x: x[torch.arange(64) % 5], lambda: [normal(64, 32)]),
    "distance": (torch.cdist, lambda: [normal(30, 5), normal(32, 5)]),
}


@pytest.mark.parametrize("name", list(DIFFERENTIABLE))
def test_gradients(name):
    torch.manual_seed(0)
    function, make = DIFFERENTIABLE[name]
    inputs = make()
    run = gradients(function, torch.randn(function(*inputs).shape))
    wide = double(inputs)
    found = estimate(lambda: run(*wide), FLOAT32)
    honest, cut = run(*inputs), run(*map(cut_to_tf32, inputs))
    for index, value in enumerate(honest):
        assert ratio(value, found, index=index) < 1
    if name not in ("gather", "distance"):
        assert max(ratio(value, found, index=index) for index, value in enumerate(cut)) > 5
    assert found.unmodelled == ()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["linear", "softmax", "gelu", "silu", "sdpa"])
def test_half_gradients(name, dtype):
    torch.manual_seed(0)
    function, make = DIFFERENTIABLE[name]
    inputs = [x.to(dtype) for x in make()]
    run = gradients(function, torch.randn(function(*inputs).shape).to(dtype))
    wide = double(inputs)
    precision = Precision(dtype=dtype)
    found = estimate(lambda: run(*wide), precision)
    for index, value in enumerate(run(*inputs)):
        assert ratio(value, found, precision, index) < 1


# what modules do beside arithmetic


def test_in_place_operations_are_seen_once_each():
    torch.manual_seed(0)
    x = normal(64, 64)

    def in_place(x: Tensor) -> Tensor:
        y = x.clone()
        y.mul_(3).add_(x)
        y[:, 0].exp_()
        y.index_put_((torch.tensor([1, 1]),), torch.ones(2, 64, dtype=x.dtype), accumulate=True)
        torch.sub(y, 1, out=y)
        return F.silu(F.relu_(y), inplace=True)

    def functional(x: Tensor) -> Tensor:
        y = x * 3 + x
        y = torch.cat([y[:, :1].exp(), y[:, 1:]], 1)
        ones = torch.ones(2, 64, dtype=x.dtype)
        y = y.index_put((torch.tensor([1, 1]),), ones, accumulate=True)
        return F.silu(F.relu(y - 1))

    written, returned = model(in_place, [x], samples=64), model(functional, [x], samples=64)
    assert torch.equal(written.values[0], returned.values[0])
    assert written.unmodelled == ()
    assert ratio(in_place(x), written) < 1
    known = returned.deviation[0] > 0
    growth = written.deviation[0][known] / returned.deviation[0][known]
    assert growth.min() > 0.5 and growth.max() < 2
    assert (written.deviation[0][~known] == 0).all()


def test_integer_results_are_exact_unless_ambiguous():
    x = torch.tensor([[1.0, 2.0, 3.0], [5.0, 1.0, 1.0]])
    found = model(lambda x: (x / 3 * 3).argmax(1), [x])
    assert torch.equal(found.values[0], torch.tensor([2, 0]))
    assert torch.equal(found.deviation[0], torch.zeros(2, dtype=torch.float64))
    close = torch.tensor([[1.0, 1.0 + 2e-8, 0.0]], dtype=torch.float64)
    found = estimate(lambda: [(close / 3).argmax(1), close > 0.5], FLOAT32)
    assert found.deviation[0].item() == 1.0
    assert not found.deviation[1].any()
    bound = allowed(found.values[0], found.deviation[0], FLOAT32, torch.int64)
    assert torch.equal(bound, torch.full((1,), torch.inf, dtype=torch.float64))


@pytest.mark.parametrize(
    ("function", "random"),
    [
        (lambda x: F.dropout(x, 0.5), True),
        (lambda x: x + torch.randn(4), True),
        (lambda x: x * torch.bernoulli(torch.full((4,), 0.5)), True),
        (lambda x: F.dropout(x, 0.5, training=False), False),
        (lambda x: torch.sort(x).values, False),
    ],
)
def test_random_draws_are_recognised_and_left_no_trace(function, random):
    x = torch.ones(4)
    before = torch.get_rng_state()
    assert model(function, [x]).draws_random is random
    assert torch.equal(before, torch.get_rng_state())


def test_complex_numbers():
    torch.manual_seed(0)
    x = normal(16, 64)

    def spectrum(x: Tensor) -> Tensor:
        wave = torch.polar(x.abs(), x) * torch.view_as_complex(torch.stack([x, -x], -1))
        return torch.fft.fft(wave).abs() + (wave @ wave.mT.conj()).real.sum() + wave.exp().imag

    found = model(spectrum, [x])
    assert ratio(spectrum(x), found) < 1
    assert (found.deviation[0] > 0).all()
    found = model(lambda x: torch.fft.rfft(x), [x])
    assert found.values[0].dtype == torch.complex128
    assert found.deviation[0].dtype == torch.float64


def test_casts_and_factories_become_float64():
    x = torch.rand(8, dtype=torch.float64)

    def casting(x: Tensor) -> Tensor:
        third = torch.arange(8, dtype=torch.float32) / 3 + torch.tensor(0.1)
        return x.float().add(torch.full((8,), 0.1)).half().to(torch.float32) * third

    before = torch.get_default_dtype()
    with Float64Mode():
        out = casting(x)
    third = torch.arange(8, dtype=torch.float64) / 3 + 0.1
    assert out.dtype == torch.float64
    assert torch.equal(out, (x + 0.1) * third)
    assert torch.get_default_dtype() == before


def test_narrow_attributes_are_widened():
    weight = torch.ones(4, 4) / 3
    with Float64Mode():
        out = torch.ones(2, 4, dtype=torch.float64) @ weight[:, :2]
    assert torch.equal(out, torch.ones(2, 4, dtype=torch.float64) @ weight[:, :2].double())


def test_a_module_that_casts_to_half_lets_the_kernel_do_so():
    x = torch.rand(1000)
    found = model(lambda x: x.half().float() * 2, [x])
    assert ratio(x.half().float() * 2, found) < 1
    assert ratio(x.half().float() * 2, model(lambda x: x * 2, [x])) > 100


def test_scalars_and_zero_dimensional_results():
    found = estimate(lambda: [torch.ones(3, dtype=torch.float64).sum() / 3, 2.5, 7], FLOAT32)
    assert [value.item() for value in found.values] == [1.0, 2.5, 7]
    assert [tuple(value.shape) for value in found.deviation] == [(), (), ()]
    assert found.deviation[0] > 0 and found.deviation[1] == 0 and found.deviation[2] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_non_finite_inputs_break_nothing(dtype):
    torch.manual_seed(0)
    x = normal(8, 64)
    x[0, 0], x[1, 1], x[2, 2] = math.nan, math.inf, -math.inf
    functions = [
        lambda x: F.softmax(x, 1),
        lambda x: F.layer_norm(x, (64,)),
        lambda x: x @ x.mT,
        lambda x: F.gelu(x) + torch.tanh(x) + F.softplus(x),
        lambda x: x.cumsum(1),
        lambda x: x.amax(1),
        lambda x: F.avg_pool1d(x, 4),
    ]
    precision = Precision(dtype=dtype)
    for function in functions:
        found = model(function, [x.to(dtype)], precision, samples=4)
        [truth], [deviation] = found.values, found.deviation
        assert torch.equal(torch.isnan(truth), torch.isnan(function(x.double())))
        assert torch.isfinite(deviation).all()
        assert not deviation[~torch.isfinite(truth)].any()
        assert torch.isfinite(allowed(truth, deviation, precision, dtype)).all()


def test_a_result_that_rounding_makes_infinite_has_no_bound():
    x = torch.tensor([1e-9, 0.5], dtype=torch.float64)
    found = estimate(lambda: [((1 + x) - 1).sqrt()], FLOAT32)
    assert torch.isinf(found.deviation[0][0]) and torch.isfinite(found.deviation[0][1])


def test_saturated_sigmoid_keeps_its_range():
    x = torch.full((100,), 20.0)
    found = model(lambda x: torch.log(1 - torch.sigmoid(x)).clamp(min=-100), [x])
    assert torch.isfinite(found.deviation[0]).all()
    with torch.no_grad():
        assert ratio((1 - torch.sigmoid(x)).log().clamp(min=-100), found) < 1


def test_unknown_operations_are_named():
    x = torch.rand(4, dtype=torch.float64)
    found = estimate(lambda: [torch.special.airy_ai(x)], FLOAT32)
    assert found.unmodelled == ("special_airy_ai",)
    assert (found.deviation[0] > 0).all()


def test_subnormal_results():
    x = torch.full((64,), 1e-30)
    x = x * torch.linspace(1, 2, 64)
    flushed, exact = torch.zeros(64), (x.double() * 1e-9).float()
    strict = Precision(dtype=torch.float32, flushes_subnormals=False)
    found = model(lambda x: x * 1e-9, [x], strict)
    bound = allowed(found.values[0], found.deviation[0], strict, torch.float32, subnormal=True)
    assert ((flushed.double() - found.values[0]).abs() > bound).all()
    assert ((exact.double() - found.values[0]).abs() <= bound).all()
    assert ratio(flushed, model(lambda x: x * 1e-9, [x])) < 1


def test_flushed_intermediates_are_modelled():
    x = torch.full((32,), -95.0)
    found = model(lambda x: torch.exp(x) * 1e30, [x])
    assert ratio(torch.zeros(32), found) < 1


def test_nested_modules():
    torch.manual_seed(0)
    x = normal(2, 10, 32)
    encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    recurrent = nn.LSTM(32, 16, batch_first=True)
    for module, pick in ((encoder, lambda y: y), (recurrent, lambda y: y[0])):
        with torch.no_grad():
            narrow = pick(module(x))
            wide = module.double()
            found = estimate(lambda wide=wide, pick=pick: [pick(wide(x.double()))], FLOAT32)
        assert ratio(narrow, found) < 1
        assert found.unmodelled == () and found.draws_random is False
        assert (found.deviation[0] < 1e-5).all()


def test_inference_mode_hides_nothing():
    x = normal(16, 64)
    with torch.inference_mode():
        hidden = model(lambda x: F.linear(x, x).softmax(1), [x])
    assert hidden.reduction_terms == 64
    assert hidden.unmodelled == ()


def test_estimates_repeat():
    x = normal(8, 8)
    first, second = (model(torch.exp, [x], seed=4) for _ in range(2))
    assert torch.equal(first.deviation[0], second.deviation[0])
    assert not torch.equal(first.deviation[0], model(torch.sin, [x], seed=4).deviation[0])


def test_deviation_of_a_short_chain_is_the_sum_of_squares():
    x = torch.rand(100_000) + 1
    found = model(lambda x: x * x - x * 0.9, [x])
    wide = x.double()
    terms = torch.stack([wide**2, 0.9 * wide, found.values[0]])
    expected = FLOAT32.accumulate_unit * terms.square().sum(0).sqrt()
    growth = found.deviation[0] / expected
    assert abs(growth.square().mean().item() - 1) < 0.01
    assert growth.min() > 0.25


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="no rounding model for torch"):
        Precision(dtype=torch.float64)
    with pytest.raises(ValueError, match="at least one perturbed run, got samples=0"):
        estimate(lambda: [torch.ones(1)], FLOAT32, samples=0)


# chains of elementwise operations

TF32 = Precision(dtype=torch.float32, tf32=True)


@pytest.mark.parametrize("depth", [2, 8, 24])
def test_layers_that_each_drop_the_same_bits_stay_under(depth):
    """Tensor cores cut bits off, so every layer of a network shrinks its results alike."""
    torch.manual_seed(0)
    x, weights = torch.rand(64, 128), [torch.randn(128, 128) * 0.12 for _ in range(depth)]

    def network(x: Tensor, *weights: Tensor) -> Tensor:
        for weight in weights:
            x = F.relu(x @ weight)
        return x

    y = x
    for weight in weights:
        y = F.relu((cut_to_tf32(y).double() @ cut_to_tf32(weight).double()).float())
    assert ratio(y, model(network, [x, *weights], TF32), TF32) < 1


def test_tensor_cores_cut_subnormal_numbers_at_the_same_place():
    torch.manual_seed(0)
    x, weight = torch.rand(16, 32) * 1e-41, torch.randn(32, 16)
    keeping = Precision(dtype=torch.float32, tf32=True, flushes_subnormals=False)
    found = model(torch.matmul, [x, weight], keeping)
    cut = (cut_to_tf32(x).double() @ cut_to_tf32(weight).double()).float()
    [truth], [deviation] = found.values, found.deviation
    bound = allowed(truth, deviation, keeping, torch.float32, subnormal=True)
    assert not cut.any()
    assert ((cut.double() - truth).abs() <= bound).all()


UNARY = {
    "exp": lambda x: torch.exp(x.clamp(max=10)),
    "log": lambda x: torch.log(x.abs() + 0.25),
    "log1p": lambda x: torch.log1p(x.abs()),
    "expm1": lambda x: torch.expm1(x.clamp(max=10)),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "sqrt": lambda x: x.abs().sqrt(),
    "rsqrt": lambda x: torch.rsqrt(x * x + 0.5),
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "square": lambda x: x.clamp(-30, 30) ** 2,
    "reciprocal": lambda x: 1 / (x.abs() + 1),
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "mish": F.mish,
    "elu": F.elu,
    "complement": lambda x: 1 - x,
    "shift": lambda x: x - 0.75,
    "scale": lambda x: x * -1.7,
    "atan": torch.atan,
    "relu": F.relu,
}
JOIN = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "max": torch.maximum,
    "axpy": lambda x, y: torch.add(x, y, alpha=-1.3),
}


@FIXED
@given(
    st.lists(st.sampled_from(sorted(UNARY)), min_size=1, max_size=6),
    st.lists(st.sampled_from(sorted(JOIN)), min_size=0, max_size=3),
    st.integers(0, 100),
)
def test_elementwise_chains_stay_under(names, joins, seed):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(seed)) * 3

    def chain(x: Tensor) -> Tensor:
        y = x
        for position, name in enumerate(names):
            y = UNARY[name](y)
            if position < len(joins):
                y = JOIN[joins[position]](y, x)
        return y

    assert ratio(chain(x), model(chain, [x])) <= 1


def test_every_name_in_the_tables_is_unambiguous():
    from lethe_env.gates.operations import BACKWARD_STABLE, ELEMENTWISE, EXACT
    from lethe_env.gates.reductions import REDUCTIONS

    tables = [set(ELEMENTWISE), set(EXACT), set(REDUCTIONS), set(BACKWARD_STABLE)]
    for first, table in enumerate(tables):
        for other in tables[first + 1 :]:
            assert not table & other


def test_decompositions_cover_the_composites():
    for name in ("_softmax", "native_layer_norm", "gelu", "logsumexp", "_log_softmax", "mish"):
        assert decomposition_of(getattr(torch.ops.aten, name).default) is not None
