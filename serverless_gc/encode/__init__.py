"""From rows to blocks to coded blocks, streaming."""
