"""Product codes: grids of blocks with parity per row and column, repaired line by line."""
