"""What runs remotely: NumPy and the standard library only. Import `serverless_gc.worker.entry` to run tasks."""
