"""Shared parts of stages: ownership, pace, parallel pages, shares, checks, the doctor."""
