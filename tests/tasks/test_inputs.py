import pytest
import torch

from lethe_env.tasks.inputs import dtype_named, lay_out
from lethe_env.tasks.probe import Probe


@pytest.mark.parametrize("shape", [(), (7,), (4, 5), (2, 3, 4)])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "offset"])
def test_a_layout_keeps_the_values(shape, layout):
    tensor = torch.randn(shape)
    assert torch.equal(lay_out(tensor, layout), tensor)


def test_layouts_differ_in_memory():
    tensor = torch.randn(4, 5)
    assert lay_out(tensor, "transposed").stride() == (1, 4)
    assert lay_out(tensor, "offset").storage_offset() % 2 == 1
    assert lay_out(tensor, "offset").stride() == (13, 1)
    assert lay_out(tensor, "expanded").stride() == (0, 1)


def test_expanding_repeats_the_first_entry():
    tensor = torch.randn(4, 5)
    assert torch.equal(lay_out(tensor, "expanded"), tensor[:1].repeat(4, 1))


def test_an_unknown_layout_or_dtype_is_refused():
    with pytest.raises(ValueError, match="no layout named 'diagonal'"):
        lay_out(torch.zeros(2), "diagonal")
    with pytest.raises(ValueError, match="no dtype named 'float17'"):
        dtype_named("float17")


def test_equal_probes_are_one_question_whatever_the_repeat():
    probe = Probe(sizes={"n": 3}, repeat=4, mute=True)
    assert probe.question == Probe(sizes={"n": 3})
    assert hash(Probe(sizes={"n": 3})) == hash(Probe(sizes={"n": 3}))
    assert Probe(**probe.to_json()) == probe
