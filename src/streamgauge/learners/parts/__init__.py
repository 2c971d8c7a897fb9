"""Parts that several methods share: losses, gradients, optimisers, probes."""
