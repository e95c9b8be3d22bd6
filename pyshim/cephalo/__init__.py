"""Runs a user's own FSDP script on unequal devices with the result of one big device."""
