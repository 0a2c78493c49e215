"""Composes the stages: capture -> readers -> attribute -> roofline -> diagnose -> Profile."""
