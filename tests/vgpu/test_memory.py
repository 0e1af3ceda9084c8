import gc

import pytest
import torch

from lethe_env.vgpu.memory import WINDOW_BITS, AddressSpace


@pytest.fixture
def space():
    return AddressSpace()


def window_of(address):
    return address >> WINDOW_BITS


def test_views_share_their_storages_window(space):
    x = torch.zeros(10, 10)
    assert space.address(x[3, 2:]) - space.address(x) == (3 * 10 + 2) * 4


def test_storages_lie_far_apart(space):
    x, y = torch.zeros(4), torch.zeros(4)
    assert window_of(space.address(x)) != window_of(space.address(y))
    for stray in (space.address(x) - (1 << 38), space.address(x) + (1 << 38)):
        number, offset, size_bytes = space.locate(stray)
        assert number == window_of(space.address(x))
        assert not 0 <= offset < size_bytes


def test_alignment_is_that_of_the_real_address(space):
    x = torch.zeros(64)
    assert space.address(x[1:]) % 4096 == x[1:].data_ptr() % 4096


def test_an_address_is_stable_while_its_storage_lives(space):
    x = torch.zeros(4)
    first = space.address(x)
    space.sweep()
    assert space.address(x.view(2, 2)) == first


def test_freed_memory_is_unmapped(space):
    x = torch.zeros(4)
    address = space.address(x)
    del x
    gc.collect()
    space.sweep()
    assert space.locate(address) is None


def test_memory_at_an_old_address_gets_the_old_window(space):
    backing = bytearray(4096)
    first = space.address(torch.frombuffer(backing, dtype=torch.float32))
    gc.collect()
    space.sweep()
    assert space.address(torch.frombuffer(backing, dtype=torch.float32)) == first


def test_a_resized_storage_keeps_no_old_bounds(space):
    x = torch.zeros(4)
    space.address(x)
    x.resize_(1000)
    _, _, size_bytes = space.locate(space.address(x))
    assert size_bytes == 4000


def test_many_storages_fit(space):
    tensors = [torch.zeros(2) for _ in range(300)]
    addresses = [space.address(tensor) for tensor in tensors]
    assert len(set(map(window_of, addresses))) == 300
    assert space.address(tensors[0]) == addresses[0]
    assert space.locate(addresses[-1])[1:] == (0, 8)


def test_an_empty_tensor_is_null(space):
    assert space.address(torch.empty(0)) == 0


def test_undefined_memory_has_a_map_until_it_is_written(space):
    x = torch.empty(10)
    space.mark_undefined(x)
    row = space.table[window_of(space.address(x))]
    assert row[3] != 0
    space.mark_defined(x[3:])
    assert row[3] == 0


def test_addresses_are_described_by_argument(space):
    x, other = torch.zeros(4), torch.zeros(8)
    arguments = {"x_ptr": space.pointer(x, "x_ptr")}
    address = space.address(x)
    assert space.describe(address + 16, arguments) == "byte 16 of the 16 bytes of argument x_ptr"
    assert space.describe(address - 4, arguments) == "byte -4 of the 16 bytes of argument x_ptr"
    assert "no argument" in space.describe(space.address(other), arguments)
    assert "no tensor" in space.describe(12345, arguments)
