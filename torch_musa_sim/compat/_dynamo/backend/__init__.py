"""Dynamo's backends for musa."""
