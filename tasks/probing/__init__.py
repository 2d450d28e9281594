"""Structural probes: dependency trees recovered from the states of an encoder's layers."""
