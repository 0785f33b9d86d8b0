"""Converts text and conversations to token files, without loading a whole input: reads inputs (sources), cuts and
labels them (texts, conversations), and writes the files (token_files, packing)."""
