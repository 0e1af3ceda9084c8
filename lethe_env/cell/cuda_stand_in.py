"""A CUDA device that is not there: CPU tensors that say they lie on `cuda:0`.

Every tensor counts as a device tensor unless it was made on the host or moved there; host tensors
carry a mark, which results inherit when all their tensor operands carry it. Nothing is copied
between the two sides except where CUDA would copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .poison import UNINITIALISED, poison

DEVICE = torch.device("cuda", 0)
HOST = torch.device("cpu")
_MARK = "_lies_on_host"
_Tensor = torch.Tensor


class _Defaults:
    """Where factories put tensors when nobody says where."""

    host = True


def set_default_device(device: Any) -> None:
    """What `torch.set_default_device` does here."""
    _Defaults.host = device is None or _names_host(device)


def is_host(tensor: torch.Tensor) -> bool:
    """Whether the tensor counts as lying in host memory."""
    return _MARK in tensor.__dict__


def mark(value: Any, host: bool) -> None:
    """Put the tensors within a result on the host or on the device."""
    if isinstance(value, torch.Tensor):
        if host:
            value.__dict__[_MARK] = True
        else:
            value.__dict__.pop(_MARK, None)
    elif isinstance(value, tuple | list):
        for item in value:
            mark(item, host)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def _names_host(device: Any) -> bool:
    """Whether a device argument means the host.

    Raises:
        RuntimeError: it means a device there is none of.
    """
    if isinstance(device, int):
        device = torch.device("cuda", device)
    device = torch.device(device)
    if device.type == "cpu":
        return True
    if device.type != "cuda" or device.index not in (None, 0):
        raise RuntimeError(f"CUDA error: invalid device ordinal ({device})")
    return False


def _is_meta(device: Any) -> bool:
    return not isinstance(device, int) and torch.device(device).type == "meta"


class DeviceStandIn(TorchFunctionMode):
    """While active, torch behaves as if tensors lay on a CUDA device."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answer questions about devices; redirect allocations; pass on the marks."""
        keywords = dict(kwargs) if kwargs else {}
        special = _SPECIAL.get(func)
        if special is not None:
            return special(*args, **keywords)
        return _ordinary(func, args, keywords)


def _ordinary(func: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    device = keywords.get("device")
    if device is not None and not _is_meta(device):
        host = _names_host(device)
        keywords["device"] = HOST
    else:
        marks = [is_host(t) for t in _tensors([*args, *keywords.values()])]
        host = all(marks) if marks else _Defaults.host
    if keywords.get("pin_memory"):
        keywords["pin_memory"] = False
    result = func(*args, **keywords)
    if func in UNINITIALISED:
        poison(result)
    if not (args and result is args[0]) and result is not keywords.get("out"):
        mark(result, host)
    return result


def _move(tensor: torch.Tensor, moved: torch.Tensor, host: bool) -> torch.Tensor:
    """The result of a move: new memory if and only if the side changes."""
    if host != is_host(tensor) and moved.untyped_storage()._cdata == (
        tensor.untyped_storage()._cdata
    ):
        moved = moved.clone()
    if moved is not tensor:
        mark(moved, host)
    return moved


def _to(tensor: torch.Tensor, *args: Any, **keywords: Any) -> torch.Tensor:
    host = is_host(tensor)
    first = args[0] if args else None
    if isinstance(keywords.get("other"), torch.Tensor):
        first, args = keywords.pop("other"), (None,)
    if isinstance(first, torch.Tensor):
        host, args = is_host(first), (first.dtype, *args[1:])
    elif type(first) is int or (isinstance(first, str | torch.device) and not _is_meta(first)):
        host, args = _names_host(first), (HOST, *args[1:])
    elif keywords.get("device") is not None and not _is_meta(keywords["device"]):
        host, keywords["device"] = _names_host(keywords["device"]), HOST
    return _move(tensor, _Tensor.to(tensor, *args, **keywords), host)


def _cuda(tensor: torch.Tensor, device: Any = None, *_: Any, **__: Any) -> torch.Tensor:
    return _move(tensor, tensor, _names_host(DEVICE if device is None else device))


def _cpu(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return _move(tensor, tensor, True)


def _numpy(tensor: torch.Tensor, *args: Any, **keywords: Any) -> Any:
    if not is_host(tensor):
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the "
            "tensor to host memory first."
        )
    return _Tensor.numpy(tensor, *args, **keywords)


def _array(tensor: torch.Tensor, *args: Any, **keywords: Any) -> Any:
    _numpy(tensor)
    return _Tensor.__array__(tensor, *args, **keywords)


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    _Tensor.data.__set__(tensor, value)
    mark(tensor, is_host(value))


_SPECIAL: dict[Any, Callable[..., Any]] = {
    _Tensor.device.__get__: lambda tensor: HOST if is_host(tensor) else DEVICE,
    _Tensor.is_cuda.__get__: lambda tensor: not is_host(tensor),
    _Tensor.is_cpu.__get__: is_host,
    _Tensor.data.__set__: _set_data,
    _Tensor.get_device: lambda tensor: -1 if is_host(tensor) else 0,
    _Tensor.to: _to,
    _Tensor.cuda: _cuda,
    _Tensor.cpu: _cpu,
    _Tensor.numpy: _numpy,
    _Tensor.__array__: _array,
    _Tensor.pin_memory: lambda tensor, *_: tensor,
    _Tensor.record_stream: lambda tensor, stream: None,
    torch.device: torch.device,
}
