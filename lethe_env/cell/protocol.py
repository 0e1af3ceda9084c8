"""What crosses the border between judge and cell: length-limited JSON and raw tensor bytes.

A message is four bytes of length, little-endian, then one JSON object. Tensors never travel in
it; it describes where their bytes lie in shared memory. Nothing is ever unpickled.
"""

from __future__ import annotations

import array
import hashlib
import json
import select
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

MESSAGE_BYTES = 16 << 20
"""Longest message either side accepts."""

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
        torch.complex64,
        torch.complex128,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint64,
        torch.uint32,
        torch.uint16,
        torch.uint8,
        torch.bool,
    )
}
"""Dtypes that may cross, by name."""

_LENGTH = struct.Struct("<I")


class HarnessError(Exception):
    """The verifier itself broke: no fault of a candidate, and no verdict about it."""


class ProtocolError(Exception):
    """The other side sent something that is not a message."""


class ClosedError(Exception):
    """The other side closed the channel."""


class DeadlineError(Exception):
    """No complete message came in time."""


def digest_of(text: str) -> str:
    """By which judge and cell call a text that both have."""
    return hashlib.sha256(text.encode()).hexdigest()


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` -> `float32`."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True, slots=True)
class WireTensor:
    """Where one tensor's bytes lie in shared memory, and how the tensor looks at them."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    """In elements."""
    storage_offset: int
    """In elements."""
    storage_bytes: int
    position: int
    """Byte position of the storage in the arena."""

    def to_json(self) -> list[Any]:
        """A JSON-ready list, read back by `from_json`."""
        return [
            self.dtype,
            self.shape,
            self.stride,
            self.storage_offset,
            self.storage_bytes,
            self.position,
        ]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> WireTensor:
        """Rebuild from `to_json`."""
        dtype, shape, stride, offset, size, position = data
        return cls(dtype, tuple(shape), tuple(stride), offset, size, position)


def send(channel: socket.socket, message: dict[str, Any], files: Sequence[int] = ()) -> None:
    """Send one message, with file descriptors if any.

    Raises:
        ClosedError: the other side is gone.
        ProtocolError: the message is longer than `MESSAGE_BYTES`.
    """
    body = json.dumps(message).encode()
    if len(body) > MESSAGE_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes exceeds the limit {MESSAGE_BYTES}")
    data = _LENGTH.pack(len(body)) + body
    attachments = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    try:
        sent = channel.sendmsg([data], attachments)
        if sent < len(data):  # sending nothing would fail if the reader is already gone
            channel.sendall(data[sent:])
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ClosedError from error


def receive(
    channel: socket.socket, deadline: float | None = None, files: list[int] | None = None
) -> dict[str, Any]:
    """Receive one message.

    Args:
        channel: a blocking stream socket.
        deadline: `time.monotonic()` value; `None` waits for ever.
        files: descriptors that came with the message are appended here.

    Raises:
        DeadlineError: no complete message in time.
        ClosedError: the other side is gone.
        ProtocolError: what came is not a JSON object within the length limit.
    """
    (length,) = _LENGTH.unpack(_read(channel, _LENGTH.size, deadline, files))
    if length > MESSAGE_BYTES:
        raise ProtocolError(f"a message of {length} bytes was announced")
    try:
        message = json.loads(_read(channel, length, deadline, None))
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a message was no JSON") from error
    if not isinstance(message, dict):
        raise ProtocolError("a message was no JSON object")
    return message


def _read(
    channel: socket.socket, count: int, deadline: float | None, files: list[int] | None
) -> bytes:
    data = bytearray()
    while len(data) < count:
        if deadline is not None:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not _readable(channel, remaining):
                raise DeadlineError
        try:
            if files is None:
                chunk = channel.recv(count - len(data))
            else:
                chunk, received, _, _ = socket.recv_fds(channel, count - len(data), 8)
                files.extend(received)
        except ConnectionResetError as error:
            raise ClosedError from error
        if not chunk:
            raise ClosedError
        data += chunk
    return bytes(data)


def _readable(channel: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def encode(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Turn a value into JSON; tensors inside are appended to `tensors` and become indices.

    Raises:
        HarnessError: the value holds something that cannot be sent.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case torch.Tensor():
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        case torch.dtype():
            return {"dtype": dtype_name(value)}
        case torch.device():
            return {"device": value.type}
        case torch.Size() | tuple():
            return {"tuple": [encode(item, tensors) for item in value]}
        case list():
            return {"list": [encode(item, tensors) for item in value]}
        case dict():
            pairs = [[encode(k, tensors), encode(v, tensors)] for k, v in value.items()]
            return {"dict": pairs}
        case complex():
            return {"complex": [value.real, value.imag]}
    raise HarnessError(f"a value of type {type(value).__name__} cannot be sent to a cell")


def decode(data: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Undo `encode`."""
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "dtype":
            return DTYPES[content]
        case "device":
            return torch.device(content)
        case "tuple":
            return tuple(decode(item, tensors) for item in content)
        case "list":
            return [decode(item, tensors) for item in content]
        case "dict":
            return {decode(k, tensors): decode(v, tensors) for k, v in content}
        case "complex":
            return complex(*content)
    raise ProtocolError(f"unknown value kind {kind!r}")
