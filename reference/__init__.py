"""Float64 numpy specification of online softmax, attention and the merge of attention states.

It defines the operators; kernels are held to it, and never to each other. It needs numpy alone. The
module and the function `attention` share a name; as an attribute of the package it is the function.
"""

from attngen.reference import cost
from attngen.reference.attention import attention, online_attention
from attngen.reference.budget import error_budget
from attngen.reference.budget_merge import merge_budget
from attngen.reference.cascade import cascade_attention
from attngen.reference.layouts import attention_paged, attention_varlen
from attngen.reference.merge import merge_state, merge_states
from attngen.reference.softmax import (
    log_softmax,
    logits,
    logsumexp,
    naive_softmax,
    online_softmax,
    safe_softmax,
    softmax_topk,
)
from attngen.reference.softmax_budget import softmax_budget
from attngen.reference.statistical import statistical_budget

__all__ = [
    "attention",
    "attention_paged",
    "attention_varlen",
    "cascade_attention",
    "cost",
    "error_budget",
    "log_softmax",
    "logits",
    "logsumexp",
    "merge_budget",
    "merge_state",
    "merge_states",
    "naive_softmax",
    "online_attention",
    "online_softmax",
    "safe_softmax",
    "softmax_budget",
    "softmax_topk",
    "statistical_budget",
]
