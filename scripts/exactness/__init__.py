"""The proof of numerics: exact values at fixed input bits, and what this library, geoopt and HypLL make of them."""
