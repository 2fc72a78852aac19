"""What Dynamo traces specially."""
