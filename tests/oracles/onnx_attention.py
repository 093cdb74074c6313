"""ONNX `Attention` nodes (opsets 23 to 25) as calls of the reference.

ONNX keeps heads before tokens, [batch, heads, seqlen, head_dim], or packs them into one last
dimension. Its causal mask and windows place query 0 after the keys that came before: past_key's
length, or nonpad_kv_seqlen - seqlen_q, or 0. Its mask is boolean (True = visible) or is added to
the scores; where it ends before the keys do, the rest is masked.
"""

import importlib
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from attngen.reference import attention

INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")
SWAPPED = (0, 2, 1, 3)  # from heads before tokens to tokens before heads, or back


def attention_cases():
    """The node cases in ONNX's order.

    ONNX's loader would import the cases of every operator, which takes ten times as long.
    """
    with warnings.catch_warnings(action="ignore"):
        importlib.import_module("onnx.backend.test.case.node.attention")
    return of_attention(importlib.import_module("onnx.backend.test.case.node")._NodeTestCases)


def of_attention(cases):
    """The cases of `Attention`, without their twins that spell the operator out."""
    return [
        case
        for case in cases
        if case.name.startswith("test_attention") and "_expanded" not in case.name
    ]


@dataclass(frozen=True)
class Call:
    """A call of the reference; q, k and v are float64 in its layout."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    options: dict[str, Any]

    def __call__(self, **changes):
        """(o, lse), with some arguments other than the node's."""
        return attention(self.q, self.k, **{"v": self.v, **self.options, **changes})


def call_of(node, inputs):
    """What a node asks of its inputs, those that it leaves out not among them."""
    attributes, x = attributes_of(node), by_role(INPUTS, node.input, inputs)
    heads_q, heads_kv = attributes.get("q_num_heads"), attributes.get("kv_num_heads")
    q = tokens_first(x["Q"], heads_q)
    k, v = (tokens_first(x[name], heads_kv) for name in ("K", "V"))
    offset = 0
    if "past_key" in x:
        offset = x["past_key"].shape[2]
        k = np.concatenate([tokens_first(x["past_key"]), k], axis=1)
        v = np.concatenate([tokens_first(x["past_value"]), v], axis=1)
    bias, mask = bias_and_mask(x.get("attn_mask"), k.shape[1])
    if "nonpad_kv_seqlen" in x:
        lengths = x["nonpad_kv_seqlen"]
        offset = lengths - q.shape[1]
        valid = np.arange(k.shape[1]) < lengths[:, None, None, None]
        mask = valid if mask is None else mask & valid
    options = {
        "causal": bool(attributes.get("is_causal", 0)),
        "causal_offset": offset,
        "window_size": tuple(attributes.get(f"{s}_window_size", -1) for s in ("left", "right")),
        "sm_scale": attributes.get("scale"),
        "softcap": attributes.get("softcap") or None,
        "bias": bias,
        "mask": mask,
    }
    return Call(q, k, v, options)


def outputs_of(node, inputs):
    """The node's outputs as float64, those that it leaves out not among them."""
    call = call_of(node, inputs)
    o, _ = call()
    packed = inputs[0].ndim == 3
    results = {
        "Y": o.reshape(*o.shape[:2], -1) if packed else o.transpose(SWAPPED),
        "present_key": call.k.transpose(SWAPPED),
        "present_value": call.v.transpose(SWAPPED),
    }
    wanted = [role for role, name in zip(OUTPUTS, node.output, strict=False) if name]
    if "qk_matmul_output" in wanted:
        mode = attributes_of(node).get("qk_matmul_output_mode", 0)
        results["qk_matmul_output"] = QK_MATMUL_OUTPUT[mode](call)
    return [results[role] for role in wanted]


def attributes_of(node):
    return {a.name: a.f if a.type == a.FLOAT else a.i for a in node.attribute}


def by_role(roles, names, arrays):
    """The arrays by their role; an empty name has no array."""
    present = [role for role, name in zip(roles, names, strict=False) if name]
    return dict(zip(present, arrays, strict=True))


def tokens_first(x, heads=None):
    """float64 [batch, seqlen, heads, head_dim]; `heads` is for the packed layout."""
    x = x.astype(np.float64)
    return x.transpose(SWAPPED) if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1)


def bias_and_mask(attn_mask, seqlen_kv):
    """(bias, mask) for the reference, at most one of which there is."""
    if attn_mask is None:
        return None, None
    missing = [(0, 0)] * (attn_mask.ndim - 1) + [(0, seqlen_kv - attn_mask.shape[-1])]
    if attn_mask.dtype == bool:
        return None, np.pad(attn_mask, missing, constant_values=False)
    return np.pad(attn_mask.astype(np.float64), missing, constant_values=-np.inf), None


def scores(call, **changes):
    """The score of every query and key, [batch, heads, seqlen_q, seqlen_kv].

    The lse of a query that sees one key alone is that key's score.
    """
    mask = {**call.options, **changes}["mask"]
    keys = np.eye(call.k.shape[1], dtype=bool)
    one_key_each = [
        call(**{**changes, "mask": key if mask is None else key & mask})[1] for key in keys
    ]
    return np.stack(one_key_each, axis=-1)


def weights(call):
    """The weight of every query and key: what attention makes of the unit vectors as values."""
    batch, seqlen_kv, heads_kv, _ = call.k.shape
    unit = np.broadcast_to(np.eye(seqlen_kv)[:, None], (batch, seqlen_kv, heads_kv, seqlen_kv))
    return call(v=unit)[0].transpose(SWAPPED)


EVERY_KEY = {"bias": None, "mask": None, "causal": False, "window_size": (-1, -1)}
QK_MATMUL_OUTPUT = {
    0: lambda call: scores(call, softcap=None, **EVERY_KEY),
    1: lambda call: scores(call, **EVERY_KEY),
    2: scores,
    3: weights,
}
