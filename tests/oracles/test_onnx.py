"""The reference against the node cases of ONNX's `Attention` operator."""

from functools import cache

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the node cases of ONNX's Attention come with onnx")

from onnx import NodeProto
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator
from onnx_attention import attention_cases, attributes_of, call_of, of_attention, outputs_of

from attngen.reference import attention_paged

CASES = {case.name: case for case in attention_cases()}
EXTERNAL_CACHE = [
    name for name, case in CASES.items() if "nonpad_kv_seqlen" in case.model.graph.node[0].input
]
# The distance between neighbours just below 1, and how many of them an output may be off.
STEPS = {"bfloat16": (2.0**-8, 1), "float16": (2.0**-11, 1), "float32": (2.0**-24, 8)}


def node_and_data(name):
    case = CASES[name]
    ((inputs, expected),) = case.data_sets
    return case.model.graph.node[0], inputs, expected


@cache
def rounded_outputs(name):
    """(got, expected) of each output, in the type of the latter."""
    node, inputs, expected = node_and_data(name)
    got = outputs_of(node, inputs)
    return [(g.astype(e.dtype), e) for g, e in zip(got, expected, strict=True)]


def holds_at_the_loaders_tolerance(name):
    case = CASES[name]
    return all(
        np.allclose(got.astype(np.float64), expected.astype(np.float64), case.rtol, case.atol)
        for got, expected in rounded_outputs(name)
    )


def test_how_many_there_are_and_hold_at_the_loaders_tolerance():
    assert len(CASES) == 93
    missed = [name for name in CASES if not holds_at_the_loaders_tolerance(name)]
    assert len(CASES) - len(missed) >= 88
    assert all("bf16" in name for name in missed)  # it is finer than a step of bfloat16


@pytest.mark.parametrize("name", CASES)
def test_within_a_step_of_the_output_type(name):
    """One step just below 1 in the 16-bit types, 8 in float32.

    ONNX computes what it expects in the output's own type. Of bfloat16 and float16 (11 cases) the
    last rounding is what shows, and one step holds as it stands. A float32 value (82 cases) carries
    a rounding of each operation of a float32 evaluator, whose products and exponentials depend on
    the machine that made the case: 4 steps are the most that is seen. That this is ONNX's rounding
    and not the reference's error shows `test_onnx_computes_the_same_in_float64`: the same evaluator
    in float64 agrees to far less than a step.
    """
    for got, expected in rounded_outputs(name):
        step, count = STEPS[expected.dtype.name]
        got, expected = got.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(got, expected, rtol=0, atol=count * step, strict=True)


@pytest.mark.parametrize("name", CASES)
def test_onnx_accepts_it(name):
    got, expected = zip(*rounded_outputs(name), strict=True)
    case = CASES[name]
    Runner.assert_similar_outputs(expected, got, rtol=case.rtol, atol=case.atol)


@pytest.mark.parametrize("name", CASES)
def test_onnx_computes_the_same_in_float64(name):
    node, inputs, _ = node_and_data(name)
    wide = NodeProto()
    wide.CopyFrom(node)
    del wide.attribute[:]
    wide.attribute.extend(a for a in node.attribute if a.name != "softmax_precision")
    feeds = {
        input_name: x if x.dtype in (bool, np.int64) else x.astype(np.float64)
        for input_name, x in zip(filter(None, node.input), inputs, strict=True)
    }
    results = ReferenceEvaluator(wide).run(None, feeds)
    expected = [x for x, output_name in zip(results, node.output, strict=True) if output_name]
    # The evaluator takes the square root of a given scale in float32.
    rtol = 1e-8 if "scale" in attributes_of(node) else 1e-13
    for got, x in zip(outputs_of(node, inputs), expected, strict=True):
        np.testing.assert_allclose(got, x, rtol=rtol, atol=1e-15, strict=True)


@pytest.mark.parametrize("name", EXTERNAL_CACHE)
def test_an_external_cache_is_a_paged_one(name):
    node, inputs, _ = node_and_data(name)
    call, lengths = call_of(node, inputs), inputs[-1]
    (batch, seqlen_q), seqlen_kv = call.q.shape[:2], call.k.shape[1]
    pages = np.random.default_rng(0).permutation(batch * seqlen_kv // 2)
    options = dict(call.options)
    del options["causal_offset"]  # the default is what ONNX says
    for option in ("bias", "mask"):
        if options[option] is not None:
            options[option] = options[option][..., : lengths.max()]
    o, lse = attention_paged(
        call.q.reshape(-1, *call.q.shape[2:]),
        in_pages(call.k, pages),
        in_pages(call.v, pages),
        pages.reshape(batch, -1),
        lengths,
        cu_seqlens_q=np.arange(batch + 1) * seqlen_q,
        **options,
    )
    expected_o, expected_lse = call()
    np.testing.assert_allclose(o.reshape(expected_o.shape), expected_o, rtol=1e-13)
    packed_lse = expected_lse.transpose(1, 0, 2).reshape(lse.shape)
    np.testing.assert_allclose(lse, packed_lse, rtol=1e-13)


def in_pages(x, pages):
    """The tokens of x [batch, seqlen, heads, head_dim] in pages of two, the n-th in pages[n]."""
    cache = np.empty((len(pages), 2, *x.shape[2:]))
    cache[pages] = x.reshape(cache.shape)
    return cache


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # from the cases of other operators
def test_the_loader_gives_the_same_cases():
    assert of_attention(load_model_tests(kind="node")) == list(CASES.values())
