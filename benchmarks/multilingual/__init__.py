"""Questions in ten languages with the passages that answer them."""
