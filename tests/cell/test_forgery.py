"""A candidate that finds the channel gains nothing."""

import pytest
import torch

from lethe_env.cell import replies
from lethe_env.cell.arena import STATUS_BYTES

FIND_CHANNEL = """
import os, stat, struct, json
def channel():
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                return int(name)
        except OSError:
            pass
def send(body):
    os.write(channel(), struct.pack("<I", len(body)) + body)
"""


@pytest.mark.parametrize(
    "forgery",
    [
        'send(json.dumps({"id": 1, "outputs": [], "launches": []}).encode())',
        'send(b"not json")',
        'send(b"[1, 2]")',
        'send(b"[" * 100000)',
        'os.write(channel(), b"\\xff" * 64)',
        "os.close(channel())",
    ],
)
def test_a_forged_answer_is_a_protocol_fault_or_an_end(open_cell, call, forgery):
    cell = open_cell(f"""{FIND_CHANNEL}
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {forgery}
        return x
""")
    observation = call(cell, torch.ones(4), deadline_seconds=5.0)
    assert observation.fault is not None
    assert observation.fault.kind in ("protocol", "signal", "exit")
    assert not cell.alive


def read_zeros(position, size_bytes):
    return torch.zeros(size_bytes, dtype=torch.uint8)


def observe(launches=(), **changes):
    output = {
        "path": "output",
        "dtype": "float32",
        "shape": [2, 3],
        "stride": [3, 1],
        "position": STATUS_BYTES,
        "device": "device",
        "owner": None,
    }
    return replies.observation_of(
        {"outputs": [output | changes], "launches": list(launches)},
        read_zeros,
        1 << 20,
        weights_matched=True,
        inputs_changed=(),
        guards_broken=(),
        time_us=1.0,
    )


def test_a_well_formed_answer_is_read():
    observation = observe()
    assert observation.fault is None
    assert observation.outputs[0].data.shape == (2, 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "object"},
        {"dtype": 3},
        {"shape": [-1, 3]},
        {"shape": [2.0, 3]},
        {"shape": [True, 3]},
        {"shape": [1 << 40, 1 << 40]},
        {"shape": [1] * 100, "stride": [1] * 100},
        {"stride": [1]},
        {"position": 0},
        {"position": "4096"},
        {"position": 1 << 40},
        {"device": "moon"},
        {"path": None},
        {"path": "x" * 10000},
        {"owner": 5},
    ],
)
def test_malformed_answers_are_protocol_faults(changes):
    observation = observe(**changes)
    assert observation.fault.kind == "protocol"
    assert observation.outputs == ()


COMPILED = {"ptx": "digest", "shared_bytes": 64, "tensor_memory_columns": 0, "threads": 128}
LAUNCH = {"kernel": "k", "arguments": {}, "options": {}, "grid": [1], "tuned": None}


def test_a_launch_says_what_it_was_compiled_to_if_it_ran():
    ran, muted = observe([LAUNCH | {"compiled": COMPILED}, LAUNCH]).launches
    assert (ran.compiled.ptx, ran.compiled.threads, muted.compiled) == ("digest", 128, None)


@pytest.mark.parametrize(
    "changes",
    [{"ptx": 3}, {"ptx": "x" * 10000}, {"shared_bytes": -1}, {"threads": True}, {"threads": "128"}],
)
def test_malformed_launches_are_protocol_faults(changes):
    observation = observe([LAUNCH | {"compiled": COMPILED | changes}])
    assert observation.fault.kind == "protocol"
    assert observation.launches == ()


def test_overlapping_outputs_cannot_exceed_the_limit():
    output = {
        "path": "output",
        "dtype": "uint8",
        "shape": [1 << 19],
        "stride": [1],
        "position": STATUS_BYTES,
        "device": "device",
        "owner": None,
    }
    observation = replies.observation_of(
        {"outputs": [output] * 3, "launches": []},
        read_zeros,
        1 << 20,
        weights_matched=True,
        inputs_changed=(),
        guards_broken=(),
        time_us=1.0,
    )
    assert "limit" in observation.fault.message


def test_a_malformed_fault_is_a_protocol_fault():
    assert replies.fault_of({"fault": {"kind": "glory"}}).kind == "protocol"
    assert replies.fault_of({"fault": None}).kind == "protocol"
    assert replies.fault_of({}) is None
