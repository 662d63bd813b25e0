"""HTTP and TLS between processes: the server and the client side, who may ask, and certificates. No policy."""
