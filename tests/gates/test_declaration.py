import pytest

from lethe_env.gates.declaration import declares_tf32


@pytest.mark.parametrize(
    ("source", "declared"),
    [
        ('acc = tl.dot(a, b, acc, input_precision="tf32")', True),
        ("acc = tl.dot(a, b, allow_tf32=True)", True),
        ('acc = tl.dot(a, b, input_precision="ieee")', False),
        ("acc = tl.dot(a, b)", False),
        ("acc = tl.dot(a, b, allow_tf32=False)", False),
        ("text = \"input_precision='tf32'\"", False),
        ("# allow_tf32=True", False),
        ("def f(:", False),
    ],
)
def test_only_an_explicit_argument_declares(source, declared):
    assert declares_tf32(source) == declared
