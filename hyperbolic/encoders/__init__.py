"""Encoders, written once against a geometry."""
