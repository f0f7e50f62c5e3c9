"""What one round is made of: `serverless_gc.pipeline` puts it together."""
