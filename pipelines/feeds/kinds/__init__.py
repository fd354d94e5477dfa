"""Payments, answers, wide answers, tasks: one file for each."""
