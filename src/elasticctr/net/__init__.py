"""HTTP and TLS between processes: server, client, access control and certificates. No policy."""
