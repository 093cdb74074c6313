"""Generated kernels, one module per variant; `attngen list` names them."""
