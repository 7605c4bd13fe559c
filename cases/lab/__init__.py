"""Runs a case and remembers: torch and the standard library, from torch 1.13 on."""
