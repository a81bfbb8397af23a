"""Spaces of which only the networks within limits are left: whatever searches them stays within."""
