"""Readers of data, one file per format."""
