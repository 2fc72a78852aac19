"""What Dynamo knows of musa, under the names of the real package."""
