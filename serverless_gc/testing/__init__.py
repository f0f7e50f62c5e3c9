"""Conformance suites and the offline rig."""
