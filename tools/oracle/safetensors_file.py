"""Safetensors files as dictionaries of torch tensors, with nothing but torch and the standard library.

Layout: u64 little-endian length of a JSON header, the header, the tensors' bytes. The header maps a name to
{"dtype", "shape", "data_offsets": [begin, end]}, offsets counted from the end of the header.
"""

import json
import struct

import torch

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def read(path):
    with open(path, "rb") as file:
        blob = bytearray(file.read())
    (header_bytes,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8 : 8 + header_bytes].decode())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = blob[8 + header_bytes + begin : 8 + header_bytes + end]
        dtype = _DTYPES[entry["dtype"]]
        flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
        tensors[name] = flat.clone().reshape(entry["shape"])
    return tensors


def _bytes(tensor):
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.dtype == torch.bfloat16:  # numpy has no bf16: hand its bits over as integers
        flat = flat.view(torch.int16)
    return flat.numpy().tobytes()


def write(path, tensors):
    header, parts, offset = {}, [], 0
    for name, tensor in tensors.items():
        raw = _bytes(tensor)
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(raw)],
        }
        parts.append(raw)
        offset += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for raw in parts:
            file.write(raw)
