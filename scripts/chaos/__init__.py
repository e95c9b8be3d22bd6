"""Trains examples/train_gpt.py on CPU ranks, breaks something every so often, and compares."""
