"""How a service is asked over HTTP: requests, credentials, uploads."""
