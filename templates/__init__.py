"""The Jinja templates that kernels are rendered from."""
