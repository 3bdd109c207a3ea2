"""Safetensors files, one tensor at a time: a file of the reference model's state is larger than many machines' memory.

Layout: u64 little-endian length of a JSON header, the header, the tensors' bytes. The header maps a name to
{"dtype", "shape", "data_offsets": [begin, end]}, offsets counted from the end of the header.
"""

import json
import math
import struct

import torch

DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def raw_bytes(tensor):
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.dtype == torch.bfloat16:  # numpy has no bf16: hand its bits over as integers
        flat = flat.view(torch.int16)
    return flat.numpy().tobytes()


def write(path, tensors, metadata=None):
    """`metadata`: texts by name, for whoever reads the file."""
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(raw_bytes(tensor))


def read_header(path):
    """name -> entry, and where the tensors' bytes begin."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size).decode())
    header.pop("__metadata__", None)
    return header, 8 + size


def read(path, names=None):
    """Yields (name, tensor) of `names`, or of all; a name that the file lacks is a KeyError."""
    header, start = read_header(path)
    with open(path, "rb") as file:
        for name in header if names is None else names:
            entry = header[name]
            begin, end = entry["data_offsets"]
            dtype = DTYPES[entry["dtype"]]
            file.seek(start + begin)
            raw = bytearray(file.read(end - begin))
            if len(raw) != math.prod(entry["shape"]) * torch.empty(0, dtype=dtype).element_size():
                raise ValueError(f"{path}: {name} has {len(raw)} bytes, which is not its shape {entry['shape']}")
            flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
            yield name, flat.reshape(entry["shape"])
