"""GGUF files taken apart and put together again, so that tests can make ones that no writer writes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


@dataclass
class Tensor:
    name: bytes
    shape: list[int]
    kind: int
    offset: int


class Parts:
    """The parts of a file. Values are (type, value); an array's value is (type of its items, list)."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 8
        tensors, values = self._take("Q"), self._take("Q")
        self.values = {self._string(): self._value(self._take("I")) for _ in range(values)}
        self.tensors = []
        for _ in range(tensors):
            name = self._string()
            shape = [self._take("Q") for _ in range(self._take("I"))]
            self.tensors.append(Tensor(name, shape, self._take("I"), self._take("Q")))
        self.head_size = self._at
        self.weights = data[-(-self._at // 32) * 32 :]

    def _take(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _string(self) -> bytes:
        length = self._take("Q")
        self._at += length
        return self._data[self._at - length : self._at]

    def _value(self, kind: int) -> tuple[int, Any]:
        if kind == STRING:
            return kind, self._string()
        if kind == ARRAY:
            item, length = self._take("I"), self._take("Q")
            return kind, (item, [self._value(item)[1] for _ in range(length)])
        return kind, self._take(CODES[kind])

    def write(self, path: Path, alignment: int = 32) -> Path:
        head = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.values)))
        for key, (kind, value) in self.values.items():
            head += packed(STRING, key) + struct.pack("<I", kind) + packed(kind, value)
        for tensor in self.tensors:
            head += packed(STRING, tensor.name) + struct.pack("<I", len(tensor.shape))
            head += struct.pack(f"<{len(tensor.shape)}QIQ", *tensor.shape, tensor.kind, tensor.offset)
        head += bytes(-len(head) % alignment)
        path.write_bytes(head + self.weights)
        return path


def packed(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return struct.pack("<Q", len(value)) + value
    if kind == ARRAY:
        item, values = value
        return struct.pack("<IQ", item, len(values)) + b"".join(packed(item, one) for one in values)
    return struct.pack("<" + CODES[kind], value)


def changed(source: Path, path: Path, **values: tuple[int, Any] | None) -> Path:
    """Write a copy of a file with other values; a double underscore in a key is a dot, None leaves the key out."""
    parts = Parts(source.read_bytes())
    for name, value in values.items():
        key = name.replace("__", ".").encode()
        if value is None:
            del parts.values[key]
        else:
            parts.values[key] = value
    return parts.write(path)
