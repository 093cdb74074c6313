"""What attention costs: bytes across HBM, FLOPs, and what a GPU's rates make of them.

Each distinct byte crosses once. A FLOP is one addition or multiplication. Sizes are bytes, times
seconds, rates per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """Peak rates of a GPU, as its maker gives them.

    Attributes:
        name: Name.
        device: The name that its driver gives it.
        peak_flops: FLOP a second of products: dense 16-bit, on the tensor cores.
        peak_flops_fp32: FLOP a second of products in true float32.
        bandwidth: Bytes a second of HBM.
        memory: Bytes of HBM.
        source: The maker's page that has the rates.
    """

    name: str
    device: str
    peak_flops: float
    peak_flops_fp32: float
    bandwidth: float
    memory: float
    source: str

    @property
    def ridge(self) -> float:
        """Intensity, FLOP a byte, from which on arithmetic and not traffic sets the time."""
        return self.peak_flops / self.bandwidth

    def in_float32(self) -> Gpu:
        """The same GPU where products are made in true float32."""
        return replace(self, peak_flops=self.peak_flops_fp32)


A100_SXM = Gpu(
    name="NVIDIA A100 SXM 80 GB",
    device="NVIDIA A100-SXM4-80GB",
    peak_flops=312e12,
    peak_flops_fp32=19.5e12,
    bandwidth=2.039e12,
    memory=80e9,
    source="NVIDIA A100 Tensor Core GPU data sheet",
)
H100_SXM = Gpu(
    name="NVIDIA H100 SXM",
    device="NVIDIA H100 80GB HBM3",
    peak_flops=989.4e12,
    peak_flops_fp32=66.9e12,
    bandwidth=3.35e12,
    memory=80e9,
    source="NVIDIA H100 Tensor Core GPU architecture white paper (products), data sheet (memory)",
)
H200_SXM = Gpu(
    name="NVIDIA H200 SXM",
    device="NVIDIA H200",
    peak_flops=989.4e12,
    peak_flops_fp32=66.9e12,
    bandwidth=4.8e12,
    memory=141e9,
    source="NVIDIA H200 Tensor Core GPU data sheet (memory); products as H100 SXM, the same chip",
)
B200_SXM = Gpu(
    name="NVIDIA B200 SXM",
    device="NVIDIA B200",
    peak_flops=2250e12,
    peak_flops_fp32=80e12,
    bandwidth=8e12,
    memory=180e9,
    source="NVIDIA Blackwell architecture technical brief, HGX B200 (products); NVIDIA DGX B200"
    " data sheet, an eighth of its 1,440 GB and 64 TB/s (memory)",
)
MI300X = Gpu(
    name="AMD Instinct MI300X",
    device="AMD Instinct MI300X",
    peak_flops=1307.4e12,
    peak_flops_fp32=163.4e12,
    bandwidth=5.3e12,
    memory=192e9,
    source="AMD Instinct MI300X accelerator data sheet",
)
GPUS = {"A100": A100_SXM, "H100": H100_SXM, "H200": H200_SXM, "B200": B200_SXM, "MI300X": MI300X}


@dataclass(frozen=True, kw_only=True)
class Attention:
    """The shape of one layer's attention, not causal, and what it costs.

    Attributes:
        seqlen_q: Queries.
        seqlen_kv: Keys.
        heads_q: Query heads.
        heads_kv: KV heads.
        head_dim: Elements of a head.
        batch: Sequences.
        element: Bytes an element.
    """

    seqlen_q: int
    seqlen_kv: int
    heads_q: int
    heads_kv: int
    head_dim: int
    batch: int = 1
    element: int = 2

    @property
    def q_bytes(self) -> int:
        """Bytes of q, and of o."""
        return self.batch * self.seqlen_q * self.heads_q * self.head_dim * self.element

    @property
    def kv_bytes(self) -> int:
        """Bytes of k, and of v."""
        return self.batch * self.seqlen_kv * self.heads_kv * self.head_dim * self.element

    @property
    def s_bytes(self) -> int:
        """Bytes of S, and of P, if they are written out."""
        return self.batch * self.heads_q * self.seqlen_q * self.seqlen_kv * self.element

    @property
    def flops(self) -> int:
        """FLOP of the two products, S = Q K^T and O = P V."""
        return 4 * self.batch * self.heads_q * self.seqlen_q * self.seqlen_kv * self.head_dim

    @property
    def intermediate_bytes(self) -> int:
        """Traffic of S and P in three kernels: each is written once and read once."""
        return 4 * self.s_bytes

    @property
    def fused_bytes(self) -> int:
        """Traffic of one fused kernel: q, k, v and o."""
        return 2 * self.q_bytes + 2 * self.kv_bytes

    @property
    def materialised_bytes(self) -> int:
        """Traffic of three kernels: S = Q K^T, P = softmax(S), O = P V."""
        return self.fused_bytes + self.intermediate_bytes

    @property
    def fused_intensity(self) -> float:
        """FLOP a byte of the fused kernel."""
        return self.flops / self.fused_bytes

    @property
    def materialised_intensity(self) -> float:
        """FLOP a byte of three kernels."""
        return self.flops / self.materialised_bytes

    def head(self) -> Attention:
        """One head alone, which shares its K and V with nobody."""
        return Attention(
            seqlen_q=self.seqlen_q,
            seqlen_kv=self.seqlen_kv,
            heads_q=1,
            heads_kv=1,
            head_dim=self.head_dim,
            element=self.element,
        )


def llama3_8b_layer(seqlen: int = 8192) -> Attention:
    """Attention of one layer of Llama-3-8B over one sequence, 2-byte elements."""
    return Attention(seqlen_q=seqlen, seqlen_kv=seqlen, heads_q=32, heads_kv=8, head_dim=128)


LLAMA3_8B_LAYERS = 32
LLAMA3_8B_WEIGHTS = 8_030_261_248 * 2  # bytes


def traffic_time(traffic: float, gpu: Gpu) -> float:
    """Seconds that `traffic` bytes take at the least."""
    return traffic / gpu.bandwidth


def compute_time(flops: float, gpu: Gpu) -> float:
    """Seconds that `flops` FLOP take at the least."""
    return flops / gpu.peak_flops


def roofline_time(flops: float, traffic: float, gpu: Gpu) -> float:
    """Seconds at the least: the longer of arithmetic and traffic."""
    return max(compute_time(flops, gpu), traffic_time(traffic, gpu))


def naive_memory(layer: Attention, weights: float = 0.0) -> float:
    """Bytes alive when naive attention writes P: S and P, beside the weights, q, k, v and o."""
    return weights + layer.fused_bytes + 2 * layer.s_bytes


def largest_naive_seqlen(layer: Attention, gpu: Gpu, weights: float = 0.0) -> int:
    """Largest seqlen_q = seqlen_kv for which `naive_memory` fits `gpu`; 0 if the weights do not.

    Args:
        layer: Heads, head_dim, batch and element size; its lengths are not used.
        gpu: Its memory is the limit.
        weights: Bytes of the model's weights.
    """
    per_square = 2 * layer.batch * layer.heads_q * layer.element
    per_token = 2 * layer.batch * (layer.heads_q + layer.heads_kv) * layer.head_dim * layer.element
    free = gpu.memory - weights
    if free <= 0:
        return 0
    root = math.sqrt(per_token**2 + 4 * per_square * free)
    return int((root - per_token) / (2 * per_square))


def decode_intensity(heads_q: int, heads_kv: int, element: int = 2) -> float:
    """FLOP a byte of one query over a long cache, 2 heads_q / (element heads_kv).

    A key and its value, 2 head_dim elements, serve 4 head_dim FLOP of each query head that reads
    them.
    """
    return 2 * heads_q / (element * heads_kv)


def merge_bytes(head_dim: int, element: int = 2) -> int:
    """Traffic of one merge, a token and head: two o and two float32 lse in, one o out."""
    lse = 4
    return 3 * head_dim * element + 2 * lse


def merge_flops(head_dim: int) -> int:
    """FLOP of merging two states, a token and head.

    Two products and a sum an element; and two exponentials, their sum, its reciprocal, two scales.
    """
    return 3 * head_dim + 6


def rescale_share(block_n: int) -> float:
    """FLOP of rescaling acc over the multiply-adds that fill it: 1 / BLOCK_N.

    A block of BLOCK_N keys rescales each element of acc once and adds BLOCK_N products to it.
    """
    return 1 / block_n
