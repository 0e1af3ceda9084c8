"""What `torch.cuda` and Triton are told of the GPU that stands in, by compute capability.

Sources: NVIDIA's data sheets and white papers of the A100, the H100 and the B200, all SXM; the CUDA
C++ Programming Guide, technical specifications by compute capability. Clocks and bandwidths are
those by which times are modelled.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..vgpu.timing import ARCHITECTURES, TARGETS

_SAME: dict[str, Any] = {
    "warp_size": 32,
    "max_threads_per_block": 1024,
    "max_threads_per_multi_processor": 2048,
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_block": 49152,
    "is_integrated": 0,
    "is_multi_gpu_board": 0,
    "gcnArchName": "",
}
_KIBIBYTE, _MEBIBYTE, _GIBIBYTE = 1 << 10, 1 << 20, 1 << 30
_OWN: dict[int, dict[str, Any]] = {
    80: {
        "name": "NVIDIA A100-SXM4-80GB",
        "total_memory": 80 * _GIBIBYTE,
        "shared_memory_per_block_optin": 163 * _KIBIBYTE,
        "shared_memory_per_multiprocessor": 164 * _KIBIBYTE,
        "L2_cache_size": 40 * _MEBIBYTE,
    },
    90: {
        "name": "NVIDIA H100 80GB HBM3",
        "total_memory": 80 * _GIBIBYTE,
        "shared_memory_per_block_optin": 227 * _KIBIBYTE,
        "shared_memory_per_multiprocessor": 228 * _KIBIBYTE,
        "L2_cache_size": 50 * _MEBIBYTE,
    },
    100: {
        "name": "NVIDIA B200",
        "total_memory": 180 * _GIBIBYTE,
        "shared_memory_per_block_optin": 227 * _KIBIBYTE,
        "shared_memory_per_multiprocessor": 228 * _KIBIBYTE,
        "L2_cache_size": 126 * _MEBIBYTE,
    },
}
_BUS_BITS = 5120


def device_properties(architecture: int) -> SimpleNamespace:
    """As `torch.cuda.get_device_properties` names them."""
    major, minor = divmod(architecture, 10)
    count = TARGETS[ARCHITECTURES[architecture]].multiprocessors
    return SimpleNamespace(
        **_SAME, **_OWN[architecture], major=major, minor=minor, multi_processor_count=count
    )


def driver_properties(architecture: int) -> dict[str, int]:
    """As Triton's driver names them; clocks in kHz."""
    target, properties = TARGETS[ARCHITECTURES[architecture]], device_properties(architecture)
    return {
        "max_shared_mem": properties.shared_memory_per_block_optin,
        "max_num_regs": properties.regs_per_multiprocessor,
        "multiprocessor_count": target.multiprocessors,
        "warpSize": properties.warp_size,
        "sm_clock_rate": round(target.clock_ghz * 1e6),
        "mem_clock_rate": round(target.memory_gb_per_s * 1e6 / (2 * _BUS_BITS / 8)),
        "mem_bus_width": _BUS_BITS,
    }
