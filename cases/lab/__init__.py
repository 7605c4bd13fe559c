"""What all cases share. Only panel and figures need more than the standard library and torch."""
