"""The serverless-gc command."""
