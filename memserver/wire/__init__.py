"""What the API answers, as frozen values: the server makes them of its own, the client reads them."""
