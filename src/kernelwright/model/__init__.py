"""The nouns that every stage shares. Imports nothing else of kernelwright."""
