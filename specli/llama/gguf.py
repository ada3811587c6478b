"""What a GGUF file says about itself, read without loading it.

GGUF versions 2 and 3, little endian. Damaged files must be found here: llama.cpp maps model files into memory, and a
truncated file can end the process instead of raising an error.

A model may be cut into several files, shards. The first one has the metadata, and each has some of the tensors.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections import ChainMap, Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from specli.errors import ModelFileError
from specli.llama.shards import shard_names, shard_of

# Type of a metadata value -> its struct code. 8 is a string, 9 an array.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY, _FLOAT64 = 8, 9, 12

# Number of a tensor type -> (name, values in a block, bytes in a block).
TENSOR_KINDS = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip

# `general.file_type` -> the common name of the quantization.
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS",
    20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M",
    28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip

# Tensors of recurrent layers: state space models and gated delta nets, short convolutions, RWKV.
_RECURRENT = re.compile(r"blk\.(\d+)\.(?:ssm_|shortconv\.|time_mix_)")


class ArrayLength(int):
    """The length of an array, which stands for the array."""


class Float64(float):
    """A number of 64 bits: where llama.cpp asks for one of 32 bits and finds this, it ends the process."""


class Tensor(NamedTuple):
    """A tensor, as the header describes it."""

    shape: tuple[int, ...]  # the numbers that lie next to each other in memory first
    kind: str


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The header of a GGUF file, or of all files of a model that is cut into several."""

    path: Path  # of the first one
    size: int  # bytes
    version: int
    metadata: dict[str, Any]  # arrays are kept as their `ArrayLength`, infinities and NaN as text
    parameters: int
    tensor_kinds: tuple[str, ...]  # most values first
    matrix_kinds: frozenset[str]  # those of tensors with two dimensions and more, which carry most of the work
    recurrent_layers: int = 0  # layers that keep a state instead of, or beside, keys and values
    shards: int = 1  # files
    tensors: Mapping[str, Tensor] = field(default_factory=dict)  # by name

    @property
    def architecture(self) -> str:
        """The model family, as llama.cpp names it."""
        return str(self.metadata.get("general.architecture", "unknown"))

    @property
    def quantization(self) -> str:
        """The name of the quantization, or of the type that most values have."""
        named = FILE_TYPES.get(self.metadata.get("general.file_type", -1))
        return named or (self.tensor_kinds[0] if self.tensor_kinds else "unknown")

    def value(self, key: str, default: Any = None) -> Any:
        """Return a value of this architecture, for instance `context_length`."""
        return self.metadata.get(f"{self.architecture}.{key}", default)


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of one file."""

    size: int
    version: int
    metadata: dict[str, Any]
    num_tensors: int
    values_of_kind: Counter[str]
    matrix_kinds: set[str]
    recurrent_layers: set[str]
    tensors: dict[str, Tensor]

    @property
    def shard(self) -> tuple[int, int]:
        """Which shard this is, counted from 1, and of how many."""
        number, count = (self.metadata.get(f"split.{name}", otherwise) for name, otherwise in (("no", 0), ("count", 1)))
        return (number + 1, count) if isinstance(number, int) and isinstance(count, int) and count > 1 else (1, 1)


def read_gguf(path: Path) -> GgufFile:
    """Read the header of a GGUF file, or of all shards of which it is the first; check their lengths.

    Raises:
        ModelFileError: a file is missing, unreadable, empty, not a GGUF file, damaged, cut short or another shard.
    """
    headers = [_read(path)]
    first = headers[0]
    number, count = first.shard
    if count > 1:
        names = shard_names(path.name)
        if number > 1:
            which = f", {names[0]}" if number <= len(names) else ""
            hint = f"Name the first one{which}; the others are found beside it."
            raise ModelFileError(f"{path} is file {number} of the {count} of a model.", hint)
        if shard_of(path.name) != (1, count):
            hint = f"The name must end in -00001-of-{count:05}.gguf, and those of the others accordingly."
            raise ModelFileError(f"{path} is the first of the {count} files of a model, named otherwise.", hint)
        headers += [_read_shard(path.with_name(name), at, count) for at, name in enumerate(names[1:], 2)]
        announced, found = first.metadata.get("split.tensors.count"), sum(header.num_tensors for header in headers)
        if announced != found:
            message = f"the {count} files of {path} have {found} tensors together, but {announced} are announced."
            raise ModelFileError(message, "Fetch all of them again, from one place.")
    values_of_kind = sum((header.values_of_kind for header in headers), Counter[str]())
    return GgufFile(
        path,
        sum(header.size for header in headers),
        first.version,
        first.metadata,
        values_of_kind.total(),
        tuple(kind for kind, _ in values_of_kind.most_common()),
        frozenset[str]().union(*(header.matrix_kinds for header in headers)),
        len(set[str]().union(*(header.recurrent_layers for header in headers))),
        count,
        dict(ChainMap(*(header.tensors for header in headers))),
    )


def _read_shard(path: Path, number: int, count: int) -> _Header:
    if not path.exists():
        message = f"file {number} of the {count} of a model is missing: {path}."
        raise ModelFileError(message, "All of them must lie in one folder; fetch it again.")
    header = _read(path)
    if header.shard != (number, count):
        found = "a whole model" if header.shard == (1, 1) else "file {} of {}".format(*header.shard)
        message = f"{path} is {found}, but should be file {number} of the {count} of a model."
        raise ModelFileError(message, "Fetch it again, from where the others came.")
    return header


def _read(path: Path) -> _Header:
    try:
        if path.is_dir():
            raise ModelFileError(f"{path} is a directory, not a model file.", "Name the .gguf file inside it.")
        size = path.stat().st_size
        if size == 0:
            raise ModelFileError(f"{path} is empty.", "Fetch it again; an interrupted copy leaves such files.")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(path, size, data)
    except FileNotFoundError:
        raise ModelFileError(f"there is no file {path}.", "'specli list' shows the models that specli knows.") from None
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}.", "Check its permissions.") from None
    except (struct.error, OverflowError, MemoryError, IndexError, KeyError):
        raise _damaged(path, f"its header does not fit in the {size} bytes of the file") from None


def _damaged(path: Path, why: str) -> ModelFileError:
    return ModelFileError(f"{path} is cut short or damaged: {why}.", "Fetch the file again, or check its digest.")


def _parse(path: Path, size: int, data: mmap.mmap) -> _Header:
    if data[:4] != b"GGUF":
        message = f"{path} is not a GGUF file: it starts with {data[:4]!r} instead of b'GGUF'."
        raise ModelFileError(message, "specli runs GGUF models; convert others with llama.cpp's convert_hf_to_gguf.py.")
    reader = _Reader(data, 4)
    version = reader.scalar("I")
    if version in (2 << 24, 3 << 24):
        hint = "Fetch the little-endian file, or convert this one with llama.cpp's gguf_convert_endian.py."
        raise ModelFileError(f"{path} is a big-endian GGUF file.", hint)
    if version not in (2, 3):
        raise ModelFileError(f"{path} has GGUF version {version}; specli reads 2 and 3.", "Convert the model again.")
    num_tensors, num_values = reader.scalar("Q"), reader.scalar("Q")
    if num_tensors * 24 + num_values * 13 > size:  # the least that an entry takes
        raise _damaged(path, f"it announces {num_tensors} tensors and {num_values} values in {size} bytes")
    metadata = {}
    for _ in range(num_values):
        key = reader.string()
        metadata[key] = reader.value(reader.scalar("I"))
    if not isinstance(template := metadata.get("tokenizer.chat_template", ""), str):
        raise _damaged(path, f"its chat template is {template!r}, not text")

    end = 0  # of the data, counted from its start
    values_of_kind: Counter[str] = Counter()
    matrix_kinds: set[str] = set()
    recurrent_layers: set[str] = set()
    tensors: dict[str, Tensor] = {}
    for _ in range(num_tensors):
        name = reader.string()
        if recurrent := _RECURRENT.match(name):
            recurrent_layers.add(recurrent[1])
        num_dimensions = reader.scalar("I")
        if num_dimensions > 8:
            raise _damaged(path, f"tensor {name!r} has {num_dimensions} dimensions")
        shape = tuple(reader.scalar("Q") for _ in range(num_dimensions))
        count = math.prod(shape)
        kind, offset = reader.scalar("I"), reader.scalar("Q")
        kind_name, block_values, block_bytes = TENSOR_KINDS.get(kind, (f"kind {kind}", 1, 0))
        tensors[name] = Tensor(shape, kind_name)
        if num_dimensions > 1:
            matrix_kinds.add(kind_name)
        values_of_kind[kind_name] += count
        end = max(end, offset + count // block_values * block_bytes)
    alignment = metadata.get("general.alignment", 32)
    # llama.cpp aligns tensors in memory by 32 bytes at least, and files lie there as they are.
    if not isinstance(alignment, int) or alignment < 32 or alignment & (alignment - 1):
        raise _damaged(path, f"its alignment is {alignment!r}")
    start = -(-reader.at // alignment) * alignment
    if num_tensors and start + end > size:
        raise _damaged(path, f"it needs {start + end} bytes and has {size}")
    return _Header(size, version, metadata, num_tensors, values_of_kind, matrix_kinds, recurrent_layers, tensors)


class _Reader:
    """A position in the bytes that advances with what is read."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self._data = data
        self.at = at

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        start = self.at
        self.skip(length)
        return self._data[start : self.at].decode("utf-8", errors="replace")

    def skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise IndexError

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return ArrayLength(self._array())
        value = self.scalar(_SCALARS[kind])
        if not math.isfinite(value):
            return str(value)
        return Float64(value) if kind == _FLOAT64 else value

    def _array(self) -> int:
        """Skip an array and return its length; vocabularies are long, and their texts are not needed here."""
        kind, length = self.scalar("I"), self.scalar("Q")
        if kind == _STRING:
            # The hot loop of this module: a vocabulary and its merges are 300,000 strings.
            unpack, data, at, limit = struct.Struct("<Q").unpack_from, self._data, self.at, len(self._data)
            for _ in range(length):
                at += 8 + unpack(data, at)[0]
                if at > limit:
                    raise IndexError
            self.at = at
        else:
            self.skip(length * struct.calcsize("<" + _SCALARS[kind]))
        return int(length)
