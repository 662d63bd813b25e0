"""Shared by cube agents and transfers: checked names, directory listings and notes of epochs. No policy."""
