"""MDS codes: any k results decode."""
