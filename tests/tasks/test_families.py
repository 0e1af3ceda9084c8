import pytest
import torch

from lethe_env.tasks.families import DOMAINS, FAMILIES, NON_FINITE, draw_values, into_domain

DRAWN = [domain for domain in DOMAINS if domain != "own"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_draws_its_dtype_the_same_way_twice(family, dtype):
    one = draw_values(family, "real", (4, 33), dtype, 3, 0)
    two = draw_values(family, "real", (4, 33), dtype, 3, 0)
    assert one.dtype == dtype
    assert torch.equal(one.nan_to_num(7.0), two.nan_to_num(7.0))
    assert bool(one.isfinite().all()) == (family not in NON_FINITE)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("zeros", "signed_zero")])
def test_another_seed_draws_other_values(family):
    one = draw_values(family, "real", (4, 33), torch.float32, 3, 0)
    two = draw_values(family, "real", (4, 33), torch.float32, 4, 0)
    assert not torch.equal(one.nan_to_num(7.0), two.nan_to_num(7.0))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_stays_inside_every_domain(family):
    for domain in DRAWN:
        values = draw_values(family, domain, (3, 65), torch.float32, 1, 0).double()
        values = values[values.isfinite()]
        if domain in ("positive",):
            assert (values > 0).all()
        elif domain in ("nonnegative", "unit", "probability"):
            assert (values >= 0).all()
        elif domain == "negative":
            assert (values < 0).all()
        elif domain == "sign":
            assert values.abs().unique().tolist() == [1.0]
        elif domain == "binary":
            assert set(values.unique().tolist()) <= {0.0, 1.0}
        if domain in ("unit", "probability"):
            assert (values <= 1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("family", ["log_uniform", "huge", "tiny"])
def test_a_product_of_three_wide_values_stays_in_range(family, dtype):
    values = draw_values(family, "real", (64, 33), dtype, 3, 0)
    finfo = torch.finfo(dtype)
    sizes = values.double().abs()
    assert sizes.max() ** 3 <= finfo.max
    assert sizes.median() ** 3 >= finfo.smallest_normal / 4
    assert sizes.max() > 8 * sizes.median() or family != "log_uniform"


@pytest.mark.parametrize("family", ["offset", "alternating"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_large_mean_leaves_the_deviation_visible(family, dtype):
    values = draw_values(family, "real", (64, 32), dtype, 3, 0).double()
    assert values.abs().mean() > 100
    for column in range(2):
        assert 0.5 < values[:, column].std() < 2


def test_probabilities_sum_to_one():
    rows = into_domain(torch.randn(5, 9, dtype=torch.float64) * 1e4, "probability")
    # nine float64 terms and one division: nine half-ulps
    assert ((rows.sum(-1) - 1).abs() <= 9 * torch.finfo(torch.float64).eps).all()


@pytest.mark.parametrize(("family", "axis"), [("cancelling_last", -1), ("cancelling_first", 0)])
def test_cancelling_terms_sum_to_the_unpaired_one(family, axis):
    values = draw_values(family, "real", (6, 8), torch.float16, 0, 0).double()
    assert torch.equal(values.sum(axis), torch.zeros_like(values.sum(axis)))
    assert values.abs().sum() > 10


def test_products_of_cancelling_inputs_cancel_too():
    left = draw_values("cancelling_last", "real", (3, 64), torch.float32, 0, 0).double()
    right = draw_values("cancelling_last", "real", (64, 5), torch.float32, 0, 1).double()
    product, terms = left @ right, left.abs() @ right.abs()
    # exact products in float64, so what is left is at most 64 half-ulps of the terms
    assert (product.abs() <= 64 * torch.finfo(torch.float64).eps * terms).all()


def test_corrupted_places_reach_ends_and_differ_between_seeds():
    masks = torch.stack(
        [
            ~draw_values("non_finite", "real", (4, 300), torch.float32, s, 0).isfinite()
            for s in range(20)
        ]
    )
    flat = masks.reshape(20, -1)
    assert flat.any(1).all()
    assert flat[:, 0].any()
    assert flat[:, -1].any()
    assert flat.any(0).sum() > 100


@pytest.mark.parametrize("family", ["nan", "positive_infinity", "negative_infinity"])
def test_a_sparse_family_leaves_rows_finite(family):
    drawn = [draw_values(family, "real", (9, 300), torch.float32, s, 0) for s in range(20)]
    counts = torch.tensor([int((~values.isfinite()).sum()) for values in drawn])
    assert counts.min() >= 1
    assert counts.max() == 3


def test_subnormals_are_subnormal_in_their_dtype():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        values = draw_values("subnormal", "real", (1000,), dtype, 0, 0).double().abs()
        assert (values > 0).all()
        assert (values < torch.finfo(dtype).smallest_normal).all()


def test_an_unknown_domain_names_the_known_ones():
    with pytest.raises(ValueError, match="no domain named 'odd'; known: real"):
        into_domain(torch.zeros(1), "odd")
