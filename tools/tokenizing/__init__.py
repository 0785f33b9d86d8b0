"""From text and conversations to token files, streaming: inputs (sources), what a model learns of them (texts,
conversations), and the files (token_files, packing)."""
