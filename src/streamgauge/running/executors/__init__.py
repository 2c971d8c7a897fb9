"""Ways to carry out a list of planned runs: sequentially, interleaved on one GPU, Ray, torchrun."""
