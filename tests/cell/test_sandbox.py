"""Every restriction, tried from inside."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from lethe_env.cell import Containment, HarnessError, Workshop

ATTEMPT = """
import ctypes, os, resource, socket, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
def system(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
class ModelNew:
    def __call__(self, server, secret):
        try:
            {action}
        except OSError as error:
            return error.errno
        return 0
"""


@pytest.fixture
def attempt(workshop, call, tmp_path):
    """The errno with which the action is refused inside a cell, or 0."""
    secret = tmp_path / "secret"
    secret.write_text("oracle")

    def run(action):
        with workshop.open(ATTEMPT.format(action=action)) as cell:
            assert cell.fault is None, cell.fault
            observation = call(cell, os.getpid(), str(secret))
            assert observation.fault is None, observation.fault
            assert secret.read_text() == "oracle"
            return int(observation.outputs[0].data)

    return run


@pytest.fixture(scope="session")
def containment(workshop):
    with workshop.open("class ModelNew: pass") as cell:
        return cell.containment


def test_what_is_enforced_is_said(containment):
    assert Containment.from_json(containment.to_json()) == containment
    if not (containment.system_calls and containment.file_access and containment.network):
        assert containment.not_enforced


FILES = [
    "open('/tmp/lethe-escape', 'w')",
    "open(secret)",
    "open(secret, 'a')",
    "os.unlink(secret)",
    "os.truncate(secret, 0)",
    "os.rename(secret, secret + 'x')",
    "os.listdir(os.path.dirname(secret))",
    "os.listdir('/home')",
    "open('/etc/shadow')",
    "open(f'/proc/{server}/mem', 'rb')",
    "open(f'/proc/{server}/environ', 'rb').read(1)",
    "os.listdir(f'/proc/{server}/fd')",
    "open(f'/proc/{os.getppid()}/mem', 'rb')",
    "open('/proc/self/mem', 'r+b')",
]


@pytest.mark.parametrize("action", FILES)
def test_files_outside_are_out_of_reach(attempt, containment, action):
    if not containment.file_access:
        pytest.skip("this kernel has no Landlock")
    assert attempt(action) in (errno.EACCES, errno.EPERM)


CALLS = [
    "socket.socket()",
    "socket.socketpair()",
    "os.fork()",
    "subprocess.run(['true'])",
    "os.execv('/bin/true', ['true'])",
    "os.kill(server, 0)",
    "os.kill(os.getppid(), 9)",
    "os.killpg(0, 9)",
    "os.setsid()",
    "os.setpgid(0, 0)",
    "os.pidfd_open(server)",
    "os.memfd_create('more')",
    "resource.prlimit(server, resource.RLIMIT_NOFILE)",
    "system(libc.ptrace(16, os.getppid(), None, None))",
    "system(libc.process_vm_readv(server, None, 0, None, 0, 0))",
    "system(libc.mount(None, b'/tmp', b'tmpfs', 0, None))",
    "system(libc.unshare(0x10000000))",
    "system(libc.syscall(425, 1, None))",
    "system(libc.shmget(0, 4096, 0o1600))",
]


@pytest.mark.parametrize("action", CALLS)
def test_system_calls_beyond_computing_are_refused(attempt, containment, action):
    if not containment.system_calls:
        pytest.skip("this kernel or machine has no system call filter")
    assert attempt(action) == errno.EPERM


LIMITS = {
    "system(libc.setrlimit(4, (ctypes.c_ulong * 2)(1, 1)))": errno.EPERM,
    "system(libc.setrlimit(9, (ctypes.c_ulong * 2)(1 << 60, 1 << 60)))": errno.EPERM,
    "os.write(os.open('big', os.O_CREAT | os.O_WRONLY), bytes(8)) and "
    "os.truncate('big', 1 << 40)": errno.EFBIG,
    "[os.dup(0) for _ in range(1 << 16)]": errno.EMFILE,
}


@pytest.mark.parametrize("action", LIMITS)
def test_resources_are_limited(attempt, action):
    assert attempt(f"import signal; signal.signal(25, signal.SIG_IGN); {action}") == LIMITS[action]


def test_capabilities_are_gone(attempt):
    effective = "next(line for line in open('/proc/self/status') if line.startswith('CapEff'))"
    assert attempt(f"if int({effective}.split()[1], 16) & ~4: raise OSError(1, '')") == 0


ALLOWED = [
    "open('own', 'w').write('x')",
    "open(os.path.expanduser('~/own'), 'w')",
    "import tempfile; tempfile.NamedTemporaryFile()",
    "open('/dev/null', 'w')",
    "t = threading.Thread(target=int); t.start(); t.join()",
    "import torch.utils.checkpoint, torch._dynamo",
    "os.kill(os.getpid(), 0)",
    "os.cpu_count()",
]


@pytest.mark.parametrize("action", ALLOWED)
def test_ordinary_things_work(attempt, action):
    assert attempt(action) == 0


def test_a_cell_has_no_network_interface_but_its_own(workshop, call, containment):
    if not containment.network:
        pytest.skip("this kernel refuses network namespaces")
    source = "class ModelNew:\n    def __call__(self):\n        return {}"
    names = "[1 for line in open('/proc/net/dev') if ':' in line and 'lo:' not in line]"
    with workshop.open(source.format(names)) as cell:
        assert call(cell).outputs == ()


def test_the_private_folder_is_gone_afterwards(workshop, call):
    source = """
import os
class ModelNew:
    def __call__(self):
        os.makedirs("a/b"); open("a/b/c", "w").close(); os.chmod("a", 0)
        return list(os.getcwd().encode())
"""
    cell = workshop.open(source)
    path = Path(bytes(int(o.data) for o in call(cell).outputs).decode())
    assert path.name.startswith("cell-")
    cell.close()
    assert not path.exists()


def test_tokens_in_the_environment_are_not_passed_on(monkeypatch, call):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    source = """
import os
class ModelNew:
    def __call__(self):
        return "SECRET_TOKEN" in os.environ
"""
    with Workshop("interpreter") as shop, shop.open(source) as cell:
        assert not call(cell).outputs[0].data.item()


JUDGE = """
import sys, torch
from lethe_env.cell import CallRequest, ModelRequest, Workshop
source = '''
import os, threading
class ModelNew:
    def __call__(self, loop):
        while loop: pass
        return [os.getpid(), os.getppid()]
'''
with Workshop("interpreter") as shop:
    cell = shop.open(source)
    ids = cell.call(CallRequest(model=ModelRequest(), inputs=(0,))).outputs
    print(*(int(o.data) for o in ids), flush=True)
    cell.call(CallRequest(model=ModelRequest(), inputs=(1,), deadline_seconds=1000))
"""


def test_nothing_survives_the_judge():
    judge = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(JUDGE)], stdout=subprocess.PIPE, text=True
    )
    with judge:
        processes = [int(word) for word in judge.stdout.readline().split()]
        assert len(processes) == 2
        assert all(Path(f"/proc/{process}").exists() for process in processes)
        judge.send_signal(signal.SIGKILL)
    for _ in range(100):
        if not any(is_running(process) for process in processes):
            return
        time.sleep(0.05)
    pytest.fail(f"still running: {processes}")


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_dead_server_is_replaced(call):
    source = """
import os
class ModelNew:
    def __call__(self):
        return os.getppid(), os.getpid()
"""
    with Workshop("interpreter") as shop:
        cell = shop.open(source)
        server, own = (int(output.data) for output in call(cell).outputs)
        os.kill(server, signal.SIGKILL)
        while is_running(server) or is_running(own):
            time.sleep(0.01)
        with pytest.raises(HarnessError, match="server has died"):
            call(cell)
        with shop.open(source) as second:
            assert int(call(second).outputs[0].data) != server


def test_closing_twice_or_after_the_workshop_is_fine():
    with Workshop("interpreter") as shop:
        cell = shop.open("class ModelNew: pass")
        other = shop.open("class ModelNew: pass")
        cell.close()
        cell.close()
    other.close()
    assert not cell.alive and not other.alive


def test_unknown_devices_are_refused():
    with pytest.raises(ValueError, match="known: interpreter, cuda"):
        Workshop("abacus")


@pytest.mark.gpu
def test_a_cuda_cell_computes_on_the_device(call):
    from .conftest import HEADER

    source = (
        HEADER
        + "class ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n        return add(x, y)"
    )
    x, y = torch.randn(1000), torch.randn(1000)
    with Workshop("cuda") as shop, shop.open(source) as cell:
        observation = call(cell, x, y)
    assert observation.fault is None
    assert torch.equal(observation.outputs[0].data, x + y)
    assert observation.outputs[0].device == "device"
    assert observation.inputs_changed == observation.guards_broken == ()
