"""Shipped test suites and an offline S3, for those who write a store, a code or an invoker of their own.

Import the modules: `serverless_gc.testing.store_suite` needs pytest, `serverless_gc.testing.moto_server` needs moto.
"""
