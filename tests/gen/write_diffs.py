"""Write tests/diffs: for each feature and each layout, what it changes in a kernel."""

from __future__ import annotations

import sys
from pathlib import Path

from attngen import store
from attngen.config import TileConfig
from attngen.spec_attention import AttentionFwd, AttentionPaged, AttentionVarlen
from attngen.variant import Variant

FOLDER = Path(__file__).parents[1] / "diffs"
TILE = TileConfig(block_m=128, block_n=64, num_warps=8, num_stages=2)


def feature_diff(feature: str) -> str:
    """From the plain kernel to the one with the feature, as a unified diff."""
    plain = AttentionFwd(head_dim=128, dtype="bf16")
    changed = AttentionFwd(head_dim=128, dtype="bf16", **{feature: True})
    return store.difference(Variant(plain, TILE), Variant(changed, TILE))


LAYOUTS = {"varlen": (AttentionFwd, AttentionVarlen), "paged": (AttentionVarlen, AttentionPaged)}
"""By a layout's name, the operators that its snapshot leads from and to."""


def layout_diff(layout: str) -> str:
    """From one layout of the tensors to the next, as a unified diff."""
    before, after = (Variant(op(head_dim=128, dtype="bf16"), TILE) for op in LAYOUTS[layout])
    return store.difference(before, after)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in AttentionFwd.features:
        (FOLDER / f"{each.name}.diff").write_text(feature_diff(each.name))
    for layout in LAYOUTS:
        (FOLDER / f"{layout}.diff").write_text(layout_diff(layout))
    sys.exit(0)
