"""Modules that Ray calls private and that clients reach into all the same: what they use of them, made of mray's public API."""
