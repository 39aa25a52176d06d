"""What commands share: options, connections, output, and the standard streams."""
