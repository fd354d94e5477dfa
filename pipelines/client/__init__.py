"""Requests to the target: replies, tokens, pace, comparison, capabilities."""
